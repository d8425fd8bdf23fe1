// Where the elements of the buffer stand in memory: lines of equal steps, block by block.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "weights.hpp"

namespace deltastore {

// `count` elements from place `at` of the buffer on; addresses and steps in bytes. As kernels/cpu/inversion.py lays
// them out.
struct Line {
    std::int64_t at;
    std::int64_t count;
    std::int64_t rule;
    std::uint64_t address[3];  // master, mean, square
    std::int64_t step[3];
};
static_assert(sizeof(Line) == 9 * 8, "the line table's rows");

// FP32 values of one block where the kernels want them: side by side.
struct BlockInputs {
    const float *of[3];
    std::size_t rule;
};

// Blocks come in ascending order, and none has elements of two rules.
class LineCursor {
  public:
    LineCursor(const Line *lines, std::size_t count, std::int64_t at)
        : here_(std::upper_bound(lines, lines + count, at,
                                 [](std::int64_t place, const Line &line) { return place < line.at; }) -
                1) {}

    // Elements [start, end), at most kBlock. What it gives lasts until the next call.
    BlockInputs inputs(std::int64_t start, std::int64_t end) {
        advance(start);
        BlockInputs result{{}, static_cast<std::size_t>(here_->rule)};
        const bool whole = end - here_->at <= here_->count;
        for (std::size_t k = 0; k < 3; ++k) {
            const bool in_place = whole && here_->step[k] == static_cast<std::int64_t>(sizeof(float));
            result.of[k] = in_place ? reinterpret_cast<const float *>(address(k, start)) : gathered_[k];
            if (!in_place) gather(k, start, end);
        }
        return result;
    }

  private:
    void advance(std::int64_t place) {
        while (place >= here_->at + here_->count) ++here_;
    }

    std::uintptr_t address(std::size_t k, std::int64_t place) const {
        return static_cast<std::uintptr_t>(here_->address[k]) +
               static_cast<std::uintptr_t>((place - here_->at) * here_->step[k]);
    }

    void gather(std::size_t k, std::int64_t start, std::int64_t end) {
        const Line *const first = here_;
        float *out = gathered_[k];
        while (start < end) {
            advance(start);
            const auto count = static_cast<std::size_t>(std::min(end, here_->at + here_->count) - start);
            copy(out, address(k, start), here_->step[k], count);
            out += count;
            start += static_cast<std::int64_t>(count);
        }
        here_ = first;
    }

    static void copy(float *out, std::uintptr_t from, std::int64_t step, std::size_t count) {
        if (step == static_cast<std::int64_t>(sizeof(float))) {
            std::memcpy(out, reinterpret_cast<const void *>(from), count * sizeof(float));
            return;
        }
        for (std::size_t j = 0; j < count; ++j) {
            std::memcpy(out + j, reinterpret_cast<const void *>(from), sizeof(float));
            from += static_cast<std::uintptr_t>(step);
        }
    }

    const Line *here_;
    alignas(64) float gathered_[3][kBlock];
};

}  // namespace deltastore
