// Taking the elements of one run out of the changed elements of a chunk.
#pragma once

#include <cstddef>
#include <cstdint>

#include "instructions.hpp"

namespace deltastore {

// Changed elements of one chunk, ascending by position. There is room for kListSlack entries more.
template <typename Element>
struct ChangedElements {
    std::uint32_t *positions = nullptr;
    Element *residues = nullptr;  // ordered new bits
    std::uint8_t *classes = nullptr;
    std::size_t count = 0;
};

// Keeps the elements up to class `last`, which close up, and moves the others to `rest`, all in their order. So each
// run leaves a shorter list to the next, and most of what is written is where the caches have it already.
template <typename Element>
using Pick = void (*)(ChangedElements<Element> &elements, int last, ChangedElements<Element> &rest);

template <typename Element>
Pick<Element> pick_for(Instructions instructions);

}  // namespace deltastore
