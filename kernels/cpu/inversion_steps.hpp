// The inversion as plain loops over arrays, written so that compilers turn them into vectors. It is compiled once for
// each set of instructions. No multiplication may be fused with an addition: -ffp-contract=off.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "inversion.hpp"
#include "weights.hpp"

#if defined(__GNUC__)
#define DELTASTORE_INLINED inline __attribute__((always_inline))
#else
#define DELTASTORE_INLINED inline
#endif

namespace deltastore {

inline constexpr std::size_t kAhead = kBlock;  // elements from a prefetch to its use; a hint, never a read
inline constexpr std::size_t kStretch = 128;   // elements between prefetches

DELTASTORE_INLINED void prefetch_stretch(const float *from) {
#if defined(__GNUC__)
    for (std::size_t k = 0; k < kStretch; k += 64 / sizeof(float)) __builtin_prefetch(from + k, 0, 2);
#else
    static_cast<void>(from);
#endif
}

DELTASTORE_INLINED std::uint32_t bits_of(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

// To nearest even; the quiet NaN of its sign.
DELTASTORE_INLINED std::uint16_t bf16_of(std::uint32_t bits) {
    const std::uint32_t high = bits >> 16;
    const std::uint32_t rounded = (bits + 0x7FFFu + (high & 1)) >> 16;
    const std::uint32_t quiet = (high & 0x8000u) | 0x7FC0u;
    return static_cast<std::uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
}

struct Estimate {
    float before;
    float reach;
};

DELTASTORE_INLINED Estimate estimate_of(float master, float mean, float square, const Rule &rule) {
    const float scaled = std::sqrt(square) * rule.root_scale + rule.eps;
    const float update = (rule.step_size * mean) / scaled;
    const float before = (master + update) * rule.growth;
    const float reach = (std::fabs(master) * rule.of_value + std::fabs(update) * rule.of_update) + rule.floor;
    return {before, reach};
}

// Most elements need no rounding to even but that of the new bits: where neither end of the interval is a NaN or
// lies on a rounding edge and both round to the same bits, so does what is between them. True where one element may
// need more, which `closely` then names.
DELTASTORE_INLINED bool invert_stretch(const float *__restrict master, const float *__restrict mean,
                                       const float *__restrict square, std::size_t count, const Rule rule,
                                       std::uint16_t *__restrict now, std::uint16_t *__restrict old,
                                       std::uint16_t *__restrict closely) {
    std::uint32_t any = 0;
    for (std::size_t k = 0; k < count; ++k) {
        const Estimate found = estimate_of(master[k], mean[k], square[k], rule);
        const float low = found.before - found.reach;
        const float high = found.before + found.reach;
        const std::uint32_t lower = bits_of(low) + 0x8000u;
        const std::uint32_t higher = bits_of(high) + 0x8000u;
        // All of them, and no branch: `||` would keep the loop from becoming vectors.
        const std::uint32_t differ = (lower ^ higher) > 0xFFFFu ? 1 : 0;
        const std::uint32_t edge = ((lower & 0xFFFFu) == 0 ? 1 : 0) | ((higher & 0xFFFFu) == 0 ? 1 : 0);
        const std::uint32_t nan = (std::isnan(low) ? 1 : 0) | (std::isnan(high) ? 1 : 0);
        const std::uint32_t look = differ | edge | nan;
        const std::uint32_t value = bits_of(master[k]);
        now[k] = static_cast<std::uint16_t>((value + 0x7FFFu + (value >> 16 & 1)) >> 16);
        old[k] = static_cast<std::uint16_t>(lower >> 16);
        closely[k] = static_cast<std::uint16_t>(look);
        any |= look;
    }
    return any != 0;
}

DELTASTORE_INLINED void invert_steps(const float *master, const float *mean, const float *square, std::size_t count,
                                     const Rule &rule, std::uint16_t *now, std::uint16_t *old, Uncertain &uncertain) {
    std::uint16_t closely[kStretch];
    for (std::size_t start = 0; start < count; start += kStretch) {
        const std::size_t here = count - start < kStretch ? count - start : kStretch;
        for (const float *stream : {master, mean, square}) prefetch_stretch(stream + start + kAhead);
        if (!invert_stretch(master + start, mean + start, square + start, here, rule, now + start, old + start,
                            closely)) {
            continue;
        }
        for (std::size_t k = start; k < start + here; ++k) {
            if (closely[k - start] == 0) continue;
            const Candidates found = invert_one(master[k], mean[k], square[k], rule);
            now[k] = bf16_of(bits_of(master[k]));
            old[k] = found.old;
            if (found.uncertain) uncertain.add(k, found.low, found.high);
        }
    }
}

}  // namespace deltastore
