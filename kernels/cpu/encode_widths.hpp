// How the elements of a patch are split into runs: the sizes of Elias-Fano sections and the choice among them.
#pragma once

#include <cstdint>

#include "changed.hpp"

namespace deltastore {

inline std::uint64_t section_bytes(std::uint64_t bits) { return (bits + 31) / 32 * 4; }

inline std::uint64_t high_bits(std::uint64_t count, std::uint64_t universe, int low) {
    return count + ((universe - 1) >> low);
}

inline std::uint64_t positions_bytes(std::uint64_t count, std::uint64_t universe, int low) {
    return section_bytes(count * static_cast<std::uint64_t>(low)) + section_bytes(high_bits(count, universe, low));
}

// The L that the encoder takes: near log2(universe / count), the smallest of the best.
int best_low_bits(std::uint64_t count, std::uint64_t universe);

struct RunPlan {
    int width = 0;        // bits of a residue
    int last_class = 0;  // elements up to this class are in it that no run before it has
    std::uint32_t count = 0;
    int low = 0;  // L
};

struct PatchPlan {
    int runs = 0;
    RunPlan run[kWidthClasses];
    std::uint64_t bytes = 0;  // of the whole patch
};

// The smallest patch for `tally[c]` elements of each class c; of equally small ones that of fewest runs, then the
// one whose widths come first in order. At least one tally is not 0.
PatchPlan plan_patch(const std::uint32_t *tally, std::uint64_t universe);

}  // namespace deltastore
