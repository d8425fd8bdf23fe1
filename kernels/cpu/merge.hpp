// Two sets of staged bits as one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "scatter_staged.hpp"

namespace deltastore {

// Chunk number c of the union is entry first[c] of one and second[c] of the other, -1 where that has none.
struct MergePlan {
    const std::int64_t *first = nullptr;
    const std::int64_t *second = nullptr;
    std::size_t count = 0;
};

// Elements of every chunk of the union; returns how many stand in both.
std::uint64_t merged_counts(const Staged &first, const Staged &second, const MergePlan &plan, std::int64_t *counts,
                            std::size_t threads);

// Writes chunk c to positions from starts[c] on and to bits from offsets[c] on; bytes up to offsets[c + 1] that
// no element fills are cleared. Where an element stands in both, `second` counts.
void merge(const Table &table, const Staged &first, const Staged &second, const MergePlan &plan,
           const std::int64_t *starts, const std::int64_t *offsets, std::uint32_t *positions, unsigned char *bits,
           std::size_t threads);

}  // namespace deltastore
