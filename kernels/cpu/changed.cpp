#include "changed.hpp"

#include <cstring>

#include "changed_steps.hpp"

namespace deltastore {
namespace {

template <typename Element>
inline void append(Element before, Element after, std::size_t at, ChangedList<Element> &list) {
    list.at[list.count] = static_cast<std::uint16_t>(at);
    list.before[list.count] = before;
    list.after[list.count] = after;
    list.count += before != after ? 1 : 0;
}

// Equal groups are passed over; a group that differs is looked at element by element, in the copy it was found in.
template <typename Element>
void scan(const unsigned char *before, const unsigned char *after, std::size_t count, std::size_t first,
          ChangedList<Element> &list) {
    constexpr std::size_t words = 4;
    constexpr std::size_t group = words * 8 / sizeof(Element);
    std::size_t k = 0;
    for (; k + group <= count; k += group) {
        std::uint64_t was[words];
        std::uint64_t is[words];
        std::memcpy(was, before + k * sizeof(Element), sizeof was);
        std::memcpy(is, after + k * sizeof(Element), sizeof is);
        for (std::size_t word = 0; word < words; ++word) {
            if (was[word] == is[word]) continue;
            constexpr std::size_t lanes = 8 / sizeof(Element);
            Element old_lanes[lanes];
            Element new_lanes[lanes];
            std::memcpy(old_lanes, &was[word], sizeof old_lanes);
            std::memcpy(new_lanes, &is[word], sizeof new_lanes);
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                append(old_lanes[lane], new_lanes[lane], first + k + word * lanes + lane, list);
            }
        }
    }
    for (; k < count; ++k) {
        Element was;
        Element is;
        std::memcpy(&was, before + k * sizeof(Element), sizeof was);
        std::memcpy(&is, after + k * sizeof(Element), sizeof is);
        append(was, is, first + k, list);
    }
}

template <typename Element>
void classify(const Element *before, const Element *after, std::size_t count, bool floating, Element *residues,
              std::uint8_t *classes, std::uint32_t *tally) {
    classify_steps(before, after, count, floating, residues, classes, tally);
}

}  // namespace

template <typename Element>
Scan<Element> scan_for(Instructions instructions) {
    if (instructions == Instructions::avx512) return avx512_scan<Element>();
    if (instructions == Instructions::avx2) return avx2_scan<Element>();
    return scan<Element>;
}

template <typename Element>
Classify<Element> classify_for(Instructions instructions) {
    if (instructions == Instructions::avx512) return avx512_classify<Element>();
    if (instructions == Instructions::avx2) return avx2_classify<Element>();
    return classify<Element>;
}

#define DELTASTORE_CHANGED_OF(Element) \
    template Scan<Element> scan_for<Element>(Instructions); \
    template Classify<Element> classify_for<Element>(Instructions)

DELTASTORE_CHANGED_OF(std::uint8_t);
DELTASTORE_CHANGED_OF(std::uint16_t);
DELTASTORE_CHANGED_OF(std::uint32_t);
DELTASTORE_CHANGED_OF(std::uint64_t);

}  // namespace deltastore
