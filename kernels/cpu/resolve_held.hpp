// Which elements of a patch some windows hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "decode_residues.hpp"
#include "pieces.hpp"
#include "places.hpp"

namespace deltastore {

// Whether the windows, which come by member, follow each other without a gap from the chunk's first element to
// its last: then every element is held.
inline bool hold_all(const std::vector<Window> &windows, std::uint64_t elements) {
    std::uint64_t next = 0;
    for (const Window &window : windows) {
        if (window.axes > 1 || window.first() != next) return false;
        next += window.elements;
    }
    return next == elements;
}

// Sets held[i] for every position number i that a window holds; the others stay as they are.
inline void mark_held(const std::vector<Window> &windows, const RunParts &parts, const std::uint32_t *positions,
                      unsigned char *held) {
    PlaceList list;
    for (const Window &window : windows) {
        const WindowPlaces places(window);
        for (int number = 0; number < parts.count; ++number) {
            const RunPart &part = parts.part[number];
            const Span span = places.within(positions + part.first, part.count);
            unsigned char *out = held + part.first;
            if (places.line()) {
                std::memset(out + span.begin, 1, span.end - span.begin);
                continue;
            }
            for (std::size_t at = span.begin; at < span.end; at += kPlaces) {
                places.list(positions + part.first + at, std::min(span.end - at, kPlaces), list);
                for (std::size_t i = 0; i < list.count; ++i) out[at + list.number[i]] = 1;
            }
        }
    }
}

}  // namespace deltastore
