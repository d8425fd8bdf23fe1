// One chunk: from what changed in it to its patch and its row.
#pragma once

#include <cstdint>

#include "encode_scratch.hpp"
#include "instructions.hpp"
#include "pieces.hpp"
#include "table.hpp"

namespace deltastore {

inline constexpr std::uint64_t kMaxChunkElements = std::uint64_t{1} << 20;

// Why nothing is encoded; kernels/cpu/encode.py has the words.
enum class Refusal : int {
    none = 0,
    no_such_chunk = 1,
    too_large = 2,
    no_seeds = 3,
    held_twice = 4,
    old_missing = 5,
    positions = 6,
};

// Where one chunk stands in the call that encodes it.
struct ChunkJob {
    const Array *array = nullptr;
    std::uint32_t array_number = 0;
    std::uint32_t chunk = 0;
    Instructions instructions = Instructions::portable;
};

// Elements that a detector lists: positions ascending, bits of the array's width at any alignment.
struct ListedElements {
    const unsigned char *positions = nullptr;
    const unsigned char *before = nullptr;
    const unsigned char *after = nullptr;
    std::size_t count = 0;
};

// The chunk must exist. Adds at most one row and its patch to `out`.
Refusal encode_changed_chunk(const ChunkJob &job, const Pieces &before, const Pieces &after, EncodeScratch &scratch,
                             PatchesOut &out);

// The same for listed elements; `whole` may be null.
Refusal encode_listed_chunk(const ChunkJob &job, const ListedElements &listed, const Pieces *whole,
                            EncodeScratch &scratch, PatchesOut &out);

}  // namespace deltastore
