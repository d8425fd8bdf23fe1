// Writing staged bits, and comparing them with what stands in memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pieces.hpp"
#include "scatter_staged.hpp"

namespace deltastore {

// In every piece that holds an element. `staged` has no bad entry.
void scatter(const Pieces &pieces, const Staged &staged, std::size_t threads);

// How many elements in memory are not what `scatter` writes there.
std::uint64_t mismatches(const Pieces &pieces, const Staged &staged, std::size_t threads);

}  // namespace deltastore
