// The digest difference of a list of elements, with the instructions that the processor has.
#pragma once

#include <cstddef>
#include <cstdint>

#include "instructions.hpp"
#include "position_digest.hpp"

namespace deltastore {

// As position_difference.
template <typename Element, typename Position>
using Difference = std::uint64_t (*)(const Places &places, Stretch &stretch, std::uint64_t base, const Position *at,
                                     const Element *before, const Element *after, std::size_t count);

template <typename Element, typename Position>
Difference<Element, Position> difference_for(Instructions instructions);

}  // namespace deltastore
