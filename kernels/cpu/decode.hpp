// One patch: its headers and sections (DS030, DS031, DS034), and the positions of all its runs (DS032, DS033).
#pragma once

#include <cstddef>
#include <cstdint>

#include "decode_run.hpp"
#include "decode_seen.hpp"
#include "row.hpp"

namespace deltastore {

inline constexpr int kMaxRuns = SeenPositions::kMost;

struct Patch {
    const unsigned char *raw = nullptr;  // the new bits of every element, where the patch has no runs
    int run_count = 0;
    Run runs[kMaxRuns];
    std::uint64_t count = 0;  // elements that it writes; never above those of its chunk
};

// Reads what a patch says of itself: constant time. `data` is `row.length` bytes; the chunk has `elements`
// elements of `bits` bits. What passes has all its sections within `data`, and counts that fit the chunk and the row.
Reason read_patch(const Row &row, const unsigned char *data, std::uint64_t elements, unsigned bits, Patch &patch);

// The positions of all runs, one run after another; `positions` has room for `patch.count + kPositionSlack`. A raw
// patch has every position. `end` is that of the readable bytes.
Reason decode_positions(const Patch &patch, std::uint64_t elements, const unsigned char *end, DecodeRun decode,
                        SeenPositions &seen, std::uint32_t *positions);

// Whether a position stands in two runs (DS033); `positions` are those of all runs.
bool shares_position(const Patch &patch, const std::uint32_t *positions, SeenPositions &seen);

}  // namespace deltastore
