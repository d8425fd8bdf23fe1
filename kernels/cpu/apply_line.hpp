// Writing one patch where memory runs through all that is held of its chunk in one stride: the usual case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "apply_pack.hpp"
#include "decode_line.hpp"
#include "decode_residues.hpp"
#include "places.hpp"

namespace deltastore {

// Puts back what stood at the first `count` positions of a run, which are held as `walk` says.
template <typename Element, typename Address>
void put_back(const LineWalk &walk, const std::uint32_t *positions, std::size_t count, Address &&address,
              const Element *old) {
    const Span held = walk.held(positions, count);
    for (std::size_t i = held.begin; i < held.end; ++i) store_at<Element>(address(positions[i]), old[i]);
}

// Memory is gone through once: what a block writes is still in the cache that it was read into. Where an element
// does not fit, what was written of the patch before it is put back, so that nothing of it is.
template <typename Element, typename Address>
Reason apply_line(const LineWalk &walk, bool floating, Address &&address, Element *old) {
    Element fresh[kMostInBlock];
    std::size_t written = 0;
    const Reason reason = walk_line<Element>(walk, address, old, [&](const LineBlock<Element> &block) {
        if (!new_bits(block.width, floating, block.residues, block.old, block.count, fresh)) return Reason::does_not_fit;
        const std::size_t both = std::min(block.count, block.later_count);
        for (std::size_t i = 0; i < both; ++i) {
            prefetch(address(block.later[i]));
            store_at<Element>(address(block.positions[i]), fresh[i]);
        }
        for (std::size_t i = both; i < block.later_count; ++i) prefetch(address(block.later[i]));
        for (std::size_t i = both; i < block.count; ++i) store_at<Element>(address(block.positions[i]), fresh[i]);
        written = block.first + block.count;
        return Reason::none;
    });
    if (reason == Reason::none) return reason;
    std::size_t first = 0;
    for (int number = 0; number < walk.patch.run_count && first < written; ++number) {
        const std::size_t count = std::min<std::size_t>(walk.patch.runs[number].count, written - first);
        put_back(walk, walk.positions + first, count, address, old + first);
        first += count;
    }
    return reason;
}

// A raw patch, where the line is one element after another.
template <typename Element>
void copy_raw(const Window &window, const unsigned char *raw) {
    std::memcpy(reinterpret_cast<void *>(window.address), raw + window.first() * sizeof(Element),
                window.elements * sizeof(Element));
}

// The patch of a chunk that has exactly this window. False where that takes another way.
template <typename Element>
bool apply_to_line(const Window &window, const Patch &patch, const Box &box, const unsigned char *end,
                   DecodeRun decode, bool floating, Scratch &positions, Scratch &old, Reason &reason) {
    const WindowPlaces places(window);
    if (!places.line()) return false;
    reason = Reason::none;
    if (patch.raw != nullptr) {
        if (!window.contiguous(sizeof(Element))) return false;
        copy_raw<Element>(window, patch.raw);
        return true;
    }
    const LineWalk walk{patch,  box.elements, end, decode, places, window.elements == box.elements,
                        positions.room<std::uint32_t>(patch.count + kPositionSlack)};
    Element *before = old.room<Element>(patch.count);
    const std::uintptr_t base = places.base();
    const std::uintptr_t stride = places.stride();
    if (stride == sizeof(Element)) {
        reason = apply_line(walk, floating, [base](std::uint32_t p) { return base + p * sizeof(Element); }, before);
    } else {
        reason = apply_line(walk, floating, [base, stride](std::uint32_t p) { return base + p * stride; }, before);
    }
    return true;
}

}  // namespace deltastore
