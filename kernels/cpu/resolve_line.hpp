// The new bits of a patch where memory runs through all that is held of its chunk in one stride: the usual case.
#pragma once

#include <cstddef>
#include <cstdint>

#include "decode_line.hpp"
#include "decode_residues.hpp"
#include "places.hpp"
#include "position_digest.hpp"
#include "resolve_patch.hpp"

namespace deltastore {

// Decodes the patch and works out `patch.fresh` and the digest difference while its lines are on their way.
template <typename Element, typename Address>
Reason resolve_line(const LineWalk &walk, const Resolving<Element> &patch, Address &&address,
                    std::uint64_t &difference) {
    const Places flat(patch.array, patch.box);
    Stretch stretch;
    unsigned width = 0;
    return walk_line<Element>(walk, address, patch.old, [&](const LineBlock<Element> &block) {
        Element *fresh = patch.fresh + block.first;
        const bool fits =
            new_bits(block.width, patch.array.floating, block.residues, block.old, block.count, fresh);
        if (!fits) return Reason::does_not_fit;
        for (std::size_t i = 0; i < block.later_count; ++i) prefetch(address(block.later[i]));
        if (block.width != width) stretch = Stretch{};
        width = block.width;
        difference += position_difference(flat, stretch, 0, block.positions, block.old, fresh, block.count);
        return Reason::none;
    });
}

// The patch of a chunk that has exactly this window, a line.
template <typename Element>
Reason resolve_on_line(const Patch &patch, const unsigned char *end, DecodeRun decode, const WindowPlaces &places,
                       const Resolving<Element> &resolving, bool holds_all, std::uint64_t &difference) {
    const LineWalk walk{patch, resolving.box.elements, end, decode, places, holds_all, resolving.positions};
    const std::uintptr_t base = places.base();
    const std::uintptr_t stride = places.stride();
    if (stride == sizeof(Element)) {
        return resolve_line(walk, resolving, [base](std::uint32_t p) { return base + p * sizeof(Element); }, difference);
    }
    return resolve_line(walk, resolving, [base, stride](std::uint32_t p) { return base + p * stride; }, difference);
}

}  // namespace deltastore
