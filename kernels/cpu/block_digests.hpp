// Digests of blocks whose elements stand in runs of their tensor (kernels/reference/block_digests.py is the contract).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "digest.hpp"
#include "instructions.hpp"
#include "weights.hpp"

namespace deltastore {

// Elements that stand one after another in the buffer and in their tensor, as the dtype RUN lays them out.
struct Run {
    std::int64_t at;
    std::int64_t flat;
    std::int64_t count;
    std::uint64_t seed;
};

// Sums of bits_j * T[start + j] mod 2^64 over `count` elements, start + count <= kBlock, of two buffers at once.
using SegmentSums = void (*)(const std::uint16_t *first, const std::uint16_t *second, std::size_t start,
                             std::size_t count, std::uint64_t (&sums)[2]);
using SegmentSum = std::uint64_t (*)(const std::uint16_t *bits, std::size_t start, std::size_t count);

inline constexpr std::size_t kShortSegment = 16;  // elements below which plain multiplications are faster

// Null where the processor lacks the instructions.
SegmentSums avx512_segment_sums();
SegmentSum avx512_segment_sum();

// Runs in the order of the buffer, and the one that was looked at last: blocks come in ascending order.
class RunCursor {
  public:
    RunCursor(const Run *runs, std::size_t count, std::int64_t at)
        : here_(std::upper_bound(runs, runs + count, at,
                                 [](std::int64_t place, const Run &run) { return place < run.at; }) -
                1) {}

    // Calls visit(at, count, flat, seed) for every part of [start, end) that stands in one run and one block of the
    // digest's positions.
    template <typename Visit>
    void each(std::int64_t start, std::int64_t end, Visit &&visit) {
        while (start < end) {
            while (start >= here_->at + here_->count) ++here_;
            const std::int64_t flat = here_->flat + (start - here_->at);
            const std::int64_t within = static_cast<std::int64_t>(kBlock) - flat % static_cast<std::int64_t>(kBlock);
            const std::int64_t count = std::min({end - start, here_->at + here_->count - start, within});
            visit(start, static_cast<std::size_t>(count), static_cast<std::uint64_t>(flat), here_->seed);
            start += count;
        }
    }

  private:
    const Run *here_;
};

// The digest of the elements [start, end) of the buffer.
template <typename Element>
std::uint64_t digest_block(const Element *bits, std::int64_t start, std::int64_t end, RunCursor &runs,
                           Instructions instructions);

struct TwoDigests {
    std::uint64_t first;
    std::uint64_t second;
};

// Of two buffers at once.
TwoDigests digest_two(const std::uint16_t *first, const std::uint16_t *second, std::int64_t start, std::int64_t end,
                      RunCursor &runs, Instructions instructions);

}  // namespace deltastore
