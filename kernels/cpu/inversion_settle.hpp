// The uncertain elements of one block, settled by trying their candidates against the digest that was wanted.
#pragma once

#include <cstddef>
#include <cstdint>

#include "block_digests.hpp"
#include "inversion.hpp"

namespace deltastore {

class Settling {
  public:
    // `missing`: by how much the digest of `old`, which starts at place `start` of the buffer, is too small.
    Settling(const Uncertain &uncertain, std::uint16_t *old, std::int64_t start, std::uint64_t missing, RunCursor runs)
        : count_(uncertain.count), old_(old), missing_(missing) {
        for (std::size_t k = 0; k < count_; ++k) {
            const std::int64_t place = start + uncertain.at[k];
            at_[k] = uncertain.at[k];
            runs.each(place, place + 1, [&](std::int64_t, std::size_t, std::uint64_t flat, std::uint64_t seed) {
                factor_[k] = (mix(kFirstPosition + flat % kBlock) | 1) * block_factor(flat / kBlock) * seed;
            });
            choose(k, old[at_[k]]);
            choose(k, uncertain.low[k]);
            choose(k, uncertain.high[k]);
        }
    }

    // Writes the first combination that has the digest, in the order of the elements and of old, low, high; the last
    // element's candidates change fastest. False, and nothing is written, where none has.
    bool settle() { return settle(0, missing_); }

  private:
    static constexpr std::uint64_t kFirstPosition = 0x64656C746173746Fu;

    void choose(std::size_t k, std::uint16_t bits) {
        for (std::size_t c = 0; c < choices_[k]; ++c) {
            if (choice_[k][c] == bits) return;
        }
        const std::uint64_t change = static_cast<std::uint64_t>(bits) - choice_[k][0];
        change_[k][choices_[k]] = choices_[k] == 0 ? 0 : change * factor_[k];
        choice_[k][choices_[k]++] = bits;
    }

    bool settle(std::size_t k, std::uint64_t missing) {
        for (std::size_t c = 0; c < choices_[k]; ++c) {
            const std::uint64_t left = missing - change_[k][c];
            if (k + 1 == count_ ? left != 0 : !settle(k + 1, left)) continue;
            old_[at_[k]] = choice_[k][c];
            return true;
        }
        return false;
    }

    std::size_t count_;
    std::uint16_t *old_;
    std::uint64_t missing_;
    std::uint16_t at_[kMostUncertain];
    std::uint64_t factor_[kMostUncertain];
    std::size_t choices_[kMostUncertain] = {};
    std::uint16_t choice_[kMostUncertain][3] = {};
    std::uint64_t change_[kMostUncertain][3];
};

}  // namespace deltastore
