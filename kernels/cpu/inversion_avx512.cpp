// 32 elements at a time. Rounding to even is only worked out where it matters: where neither end of the interval lies
// on a rounding edge and both round to the same bits, so does what is between them.

#include "inversion.hpp"

#if defined(__GNUC__) && defined(__x86_64__)

#if !defined(__clang__)
// GCC 12 takes the don't-care operands in its own header for forgotten ones.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <algorithm>

#include "inversion_steps.hpp"

#define DELTASTORE_AVX512 \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt,bmi,bmi2")))

namespace deltastore {
namespace {

constexpr std::size_t kLanes = 16;
constexpr std::size_t kPair = 2 * kLanes;

// The high words of two vectors, side by side.
alignas(64) constexpr std::uint16_t kHighWords[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                      23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                      45, 47, 49, 51, 53, 55, 57, 59, 61, 63};

struct Memory {
    const float *master;
    const float *mean;
    const float *square;
};

struct Inputs {
    __m512 master;
    __m512 mean;
    __m512 square;
};

struct Interval {
    __m512 before;
    __m512 low;
    __m512 high;
};

DELTASTORE_AVX512 inline __m512 all(float value) { return _mm512_set1_ps(value); }
DELTASTORE_AVX512 inline __m512i all(std::uint32_t value) { return _mm512_set1_epi32(static_cast<int>(value)); }
DELTASTORE_AVX512 inline __m512i bits(__m512 values) { return _mm512_castps_si512(values); }

DELTASTORE_AVX512 inline Interval interval_of(const Inputs &in, const Rule &rule) {
    const __m512 root = _mm512_sqrt_ps(in.square);
    const __m512 scaled = _mm512_add_ps(_mm512_mul_ps(root, all(rule.root_scale)), all(rule.eps));
    const __m512 update = _mm512_div_ps(_mm512_mul_ps(all(rule.step_size), in.mean), scaled);
    const __m512 before = _mm512_mul_ps(_mm512_add_ps(in.master, update), all(rule.growth));
    const __m512 value = _mm512_mul_ps(_mm512_abs_ps(in.master), all(rule.of_value));
    const __m512 change = _mm512_mul_ps(_mm512_abs_ps(update), all(rule.of_update));
    const __m512 reach = _mm512_add_ps(_mm512_add_ps(value, change), all(rule.floor));
    return {before, _mm512_sub_ps(before, reach), _mm512_add_ps(before, reach)};
}

// To nearest even, in the high words; of no NaN.
DELTASTORE_AVX512 inline __m512i rounded(__m512 values) {
    const __mmask16 odd = _mm512_test_epi32_mask(bits(values), all(0x10000u));
    const __m512i up = _mm512_add_epi32(bits(values), all(0x7FFFu));
    return _mm512_mask_sub_epi32(up, odd, up, all(~0u));
}

DELTASTORE_AVX512 inline __m512i quieted(__m512 values, __m512i result) {
    const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    const __m512i quiet = _mm512_or_si512(_mm512_and_si512(bits(values), all(0x80000000u)), all(0x7FC00000u));
    return _mm512_mask_mov_epi32(result, nan, quiet);
}

// One vector of FP32 values each, of which lanes outside `within` are not read.
DELTASTORE_AVX512 inline Inputs load(const Memory &from, std::size_t at, __mmask16 within) {
    return {_mm512_maskz_loadu_ps(within, from.master + at), _mm512_maskz_loadu_ps(within, from.mean + at),
            _mm512_maskz_loadu_ps(within, from.square + at)};
}

// Of a vector in which an element may be uncertain, be a NaN or lie on an edge, as the plain loops do it.
DELTASTORE_AVX512 void look_closely(const Memory &from, std::size_t at, __mmask16 within, const Rule &rule,
                                    std::uint16_t *now, std::uint16_t *old, Uncertain &uncertain) {
    const Inputs in = load(from, at, within);
    const Interval found = interval_of(in, rule);
    const __m512i low = rounded(found.low);
    const __m512i high = rounded(found.high);
    const __mmask16 nan = _mm512_mask_cmp_ps_mask(within, found.low, found.high, _CMP_UNORD_Q);
    const __mmask16 differ = _mm512_mask_test_epi32_mask(within, _mm512_xor_si512(low, high), all(0xFFFF0000u));
    const __m512i current = quieted(in.master, rounded(in.master));
    _mm256_mask_storeu_epi16(now + at, within, _mm512_cvtepi32_epi16(_mm512_srli_epi32(current, 16)));
    _mm256_mask_storeu_epi16(old + at, within,
                             _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded(found.before), 16)));
    alignas(64) std::uint32_t lower[kLanes];
    alignas(64) std::uint32_t higher[kLanes];
    _mm512_store_si512(lower, _mm512_srli_epi32(low, 16));
    _mm512_store_si512(higher, _mm512_srli_epi32(high, 16));
    for (unsigned left = nan | differ; left != 0; left &= left - 1) {
        const auto lane = static_cast<std::size_t>(__builtin_ctz(left));
        Candidates element{0, static_cast<std::uint16_t>(lower[lane]), static_cast<std::uint16_t>(higher[lane]), true};
        if ((nan >> lane & 1) != 0) {
            element = invert_one(from.master[at + lane], from.mean[at + lane], from.square[at + lane], rule);
            old[at + lane] = element.old;
        }
        uncertain.add(at + lane, element.low, element.high);
    }
}

// The bits of two vectors where all elements are plain; whether they are.
DELTASTORE_AVX512 inline bool invert_pair(const Inputs &first, const Inputs &second, const Rule &rule, __m512i &now,
                                          __m512i &old) {
    const Interval one = interval_of(first, rule);
    const Interval two = interval_of(second, rule);
    // Half of the last place kept, added: the low word is 0 where that was a tie.
    const __m512i half = all(0x8000u);
    const __m512i low[2] = {_mm512_add_epi32(bits(one.low), half), _mm512_add_epi32(bits(two.low), half)};
    const __m512i high[2] = {_mm512_add_epi32(bits(one.high), half), _mm512_add_epi32(bits(two.high), half)};
    const __m512i differ = _mm512_or_si512(_mm512_xor_si512(low[0], high[0]), _mm512_xor_si512(low[1], high[1]));
    const __m512i least = _mm512_min_epu16(_mm512_min_epu16(low[0], high[0]), _mm512_min_epu16(low[1], high[1]));
    const unsigned unsure = _mm512_test_epi32_mask(differ, all(0xFFFF0000u)) |
                            _mm512_testn_epi32_mask(least, all(0x0000FFFFu)) |
                            _mm512_cmp_ps_mask(one.low, one.high, _CMP_UNORD_Q) |
                            _mm512_cmp_ps_mask(two.low, two.high, _CMP_UNORD_Q);
    const __m512i words = _mm512_load_si512(kHighWords);
    now = _mm512_permutex2var_epi16(rounded(first.master), words, rounded(second.master));
    old = _mm512_permutex2var_epi16(low[0], words, low[1]);
    return unsure == 0;
}

DELTASTORE_AVX512 void invert_block(const float *master, const float *mean, const float *square, std::size_t count,
                                    const Rule &given, std::uint16_t *now, std::uint16_t *old, Uncertain &uncertain) {
    static_assert(kBlock / kPair <= 64, "one bit for each pair");
    const Rule rule = given;
    const Memory from{master, mean, square};
    constexpr __mmask16 whole = 0xFFFF;
    std::uint64_t unsure = 0;
    const std::size_t pairs = count / kPair;
    for (std::size_t pair = 0; pair < pairs; ++pair) {
        const std::size_t k = pair * kPair;
        for (const float *stream : {master, mean, square}) {
            __builtin_prefetch(stream + k + kAhead, 0, 2);
            __builtin_prefetch(stream + k + kAhead + kLanes, 0, 2);
        }
        __m512i words[2];
        const bool plain =
            invert_pair(load(from, k, whole), load(from, k + kLanes, whole), rule, words[0], words[1]);
        unsure |= static_cast<std::uint64_t>(!plain) << pair;
        _mm512_storeu_si512(now + k, words[0]);
        _mm512_storeu_si512(old + k, words[1]);
    }
    for (; unsure != 0; unsure &= unsure - 1) {
        const std::size_t k = static_cast<std::size_t>(__builtin_ctzll(unsure)) * kPair;
        look_closely(from, k, whole, rule, now, old, uncertain);
        look_closely(from, k + kLanes, whole, rule, now, old, uncertain);
    }
    for (std::size_t k = pairs * kPair; k < count; k += kLanes) {
        const auto within = static_cast<__mmask16>(whole >> (kLanes - std::min(kLanes, count - k)));
        look_closely(from, k, within, rule, now, old, uncertain);
    }
}

}  // namespace

InvertBlock avx512_invert_block() { return invert_block; }

}  // namespace deltastore

#else

namespace deltastore {

InvertBlock avx512_invert_block() { return invert_block_for(Instructions::portable); }

}  // namespace deltastore

#endif
