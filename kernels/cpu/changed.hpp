// Which elements of two equally long ranges differ: the first pass over both, one vector at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "instructions.hpp"

namespace deltastore {

inline constexpr std::size_t kScanBlock = 65536;  // positions of one block; within it they are kept in 16 bits
inline constexpr std::size_t kListSlack = 64;     // entries beyond the last that a scan may overwrite

// Changed elements, block after block, in ascending order of position. Room for all and kListSlack entries more.
template <typename Element>
struct ChangedList {
    std::uint16_t *at = nullptr;  // position within the block
    Element *before = nullptr;
    Element *after = nullptr;
    std::size_t count = 0;
};

// Appends the elements k < `count` whose bits differ, as position first + k. Both sides are contiguous, at any
// alignment. Each element of `after` that is listed is listed with bits that were read once.
template <typename Element>
using Scan = void (*)(const unsigned char *before, const unsigned char *after, std::size_t count,
                      std::size_t first, ChangedList<Element> &list);

template <typename Element>
Scan<Element> scan_for(Instructions instructions);

template <typename Element>
Scan<Element> avx2_scan();
template <typename Element>
Scan<Element> avx512_scan();

inline constexpr int kWidthClasses = 6;  // residue widths 2, 4, 8, 16, 32, 64

// The class of an element's own width.
template <typename Element>
constexpr int widest_class() {
    return sizeof(Element) == 1 ? 2 : sizeof(Element) == 2 ? 3 : sizeof(Element) == 4 ? 4 : 5;
}

// What the second pass makes of a list: for each element the ordered new bits, the narrowest residue width that
// carries its step (as an index into the widths), and how many there are of each (added to `tally`).
template <typename Element>
using Classify = void (*)(const Element *before, const Element *after, std::size_t count, bool floating,
                          Element *residues, std::uint8_t *classes, std::uint32_t *tally);

template <typename Element>
Classify<Element> classify_for(Instructions instructions);

template <typename Element>
Classify<Element> avx2_classify();
template <typename Element>
Classify<Element> avx512_classify();

}  // namespace deltastore
