// The new bits of every held element of some patches, without writing them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "apply_pack.hpp"
#include "decode_run.hpp"
#include "pieces.hpp"
#include "scatter_staged.hpp"

namespace deltastore {

// How many elements of each row's patch the pieces hold. What this costs no decoding for is not checked: rows
// that hold all of their chunk, or nothing of it, are only opened.
void count_held(const Pieces &pieces, const Pack &pack, DecodeRun decode, std::size_t threads, std::int64_t *counts,
                FirstBad &bad);

// Where the results go: row r has starts[r + 1] - starts[r] elements, as `count_held` says, and bits from
// offsets[r] to offsets[r + 1].
struct ResolvedBits {
    const std::int64_t *starts = nullptr;
    const std::int64_t *offsets = nullptr;
    std::uint32_t *positions = nullptr;
    unsigned char *bits = nullptr;
    std::uint64_t *differences = nullptr;
};

// Bits that are staged already count as standing in memory: those of row r are entry under_row[r], or none where
// that is negative.
struct Under {
    Staged staged;
    const std::int64_t *row = nullptr;  // null: there are none at all
};

// For the rows below `bad`'s.
void resolve(const Pieces &pieces, const Pack &pack, const Under &under, DecodeRun decode, std::size_t threads,
             const ResolvedBits &out, FirstBad &bad);

}  // namespace deltastore
