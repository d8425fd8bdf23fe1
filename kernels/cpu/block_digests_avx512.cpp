// As digest_avx2.cpp, for any part of a block of positions: T in four signed digits of 16 bits, elements read as signed
// numbers u - 2^15. d0 and d1 need their sums exactly, which the sum of the products' high halves gives.

#include "block_digests.hpp"

#if defined(__GNUC__) && defined(__x86_64__)

#if !defined(__clang__)
// GCC 12 takes the don't-care operands in its own header for forgotten ones.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#define DELTASTORE_AVX512 \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt,bmi,bmi2")))

namespace deltastore {
namespace {

constexpr std::size_t kLanes = 32;
constexpr std::size_t kPlane = kBlock + 416;  // no two planes on one set of the cache; the end is read, never used

struct Planes {
    std::int16_t of[4][kPlane]{};
    std::uint64_t before[kBlock + 1]{};  // 2^15 * sum of T below j
};

constexpr Planes make_planes() {
    Planes planes;
    for (std::size_t j = 0; j < kBlock; ++j) {
        std::uint64_t rest = position_factor(j);
        planes.before[j + 1] = planes.before[j] + (rest << 15);
        for (std::size_t d = 0; d < 4; ++d) {
            const std::int32_t carry = (rest & 0x8000) != 0 ? 0x10000 : 0;
            const std::int32_t digit = static_cast<std::int32_t>(rest & 0xFFFF) - carry;
            planes.of[d][j] = static_cast<std::int16_t>(digit);
            rest = (rest - static_cast<std::uint64_t>(std::int64_t{digit})) >> 16;
        }
    }
    return planes;
}

alignas(64) constexpr Planes kPlanes = make_planes();  // digest_avx2.cpp asserts that no digit is -2^15

struct Sums {
    __m512i wrapped[4];
    __m512i high[2];
};

DELTASTORE_AVX512 inline void add(Sums &sums, const __m512i (&digits)[4], __m512i elements) {
    for (std::size_t d = 0; d < 4; ++d) {
        const __m512i product = _mm512_madd_epi16(elements, digits[d]);
        sums.wrapped[d] = _mm512_add_epi32(sums.wrapped[d], product);
        if (d < 2) sums.high[d] = _mm512_add_epi32(sums.high[d], _mm512_srai_epi32(product, 16));
    }
}

DELTASTORE_AVX512 inline void load(__m512i (&digits)[4], std::size_t at) {
    for (std::size_t d = 0; d < 4; ++d) digits[d] = _mm512_loadu_si512(&kPlanes.of[d][at]);
}

// Neighbouring lanes of 32 bits added to lanes of 64, as unsigned and as signed numbers.
DELTASTORE_AVX512 inline __m512i widened(__m512i lanes) {
    return _mm512_add_epi64(_mm512_srli_epi64(lanes, 32), _mm512_and_si512(lanes, _mm512_set1_epi64(0xFFFFFFFF)));
}

DELTASTORE_AVX512 inline __m512i widened_signed(__m512i lanes) {
    return _mm512_add_epi64(_mm512_srai_epi64(lanes, 32), _mm512_srai_epi64(_mm512_slli_epi64(lanes, 32), 32));
}

DELTASTORE_AVX512 inline std::uint64_t total(const Sums &sums) {
    __m512i all = _mm512_setzero_si512();
    for (unsigned d = 0; d < 4; ++d) {
        __m512i sum = widened(sums.wrapped[d]);
        if (d < 2) {
            // The low halves add up to less than 2^32, so wrapped - high * 2^16 is their true sum.
            const __m512i low = _mm512_sub_epi32(sums.wrapped[d], _mm512_slli_epi32(sums.high[d], 16));
            sum = _mm512_add_epi64(widened(low), _mm512_slli_epi64(widened_signed(sums.high[d]), 16));
        }
        all = _mm512_add_epi64(all, _mm512_slli_epi64(sum, 16 * d));
    }
    alignas(64) std::uint64_t lanes[8];
    _mm512_store_si512(lanes, all);
    std::uint64_t result = 0;
    for (const std::uint64_t lane : lanes) result += lane;
    return result;
}

template <std::size_t Buffers>
DELTASTORE_AVX512 inline void segment_sums(const std::uint16_t *const (&bits)[Buffers], std::size_t start,
                                           std::size_t count, std::uint64_t (&result)[Buffers]) {
    const __m512i offset = _mm512_set1_epi16(-0x8000);
    Sums sums[Buffers]{};
    __m512i digits[4];
    std::size_t k = 0;
    for (; k + kLanes <= count; k += kLanes) {
        load(digits, start + k);
        for (std::size_t b = 0; b < Buffers; ++b) {
            add(sums[b], digits, _mm512_xor_si512(_mm512_loadu_si512(bits[b] + k), offset));
        }
    }
    if (k < count) {
        const __mmask32 within = ~__mmask32{0} >> (kLanes - (count - k));
        load(digits, start + k);
        for (std::size_t b = 0; b < Buffers; ++b) {
            const __m512i raw = _mm512_maskz_loadu_epi16(within, bits[b] + k);
            add(sums[b], digits, _mm512_maskz_sub_epi16(within, raw, offset));
        }
    }
    const std::uint64_t bias = kPlanes.before[start + count] - kPlanes.before[start];
    for (std::size_t b = 0; b < Buffers; ++b) result[b] = total(sums[b]) + bias;
}

DELTASTORE_AVX512 void two_sums(const std::uint16_t *first, const std::uint16_t *second, std::size_t start,
                                std::size_t count, std::uint64_t (&sums)[2]) {
    const std::uint16_t *const bits[2] = {first, second};
    segment_sums<2>(bits, start, count, sums);
}

DELTASTORE_AVX512 std::uint64_t one_sum(const std::uint16_t *bits, std::size_t start, std::size_t count) {
    const std::uint16_t *const all[1] = {bits};
    std::uint64_t sums[1];
    segment_sums<1>(all, start, count, sums);
    return sums[0];
}

}  // namespace

SegmentSums avx512_segment_sums() { return two_sums; }
SegmentSum avx512_segment_sum() { return one_sum; }

}  // namespace deltastore

#else

namespace deltastore {

SegmentSums avx512_segment_sums() { return nullptr; }
SegmentSum avx512_segment_sum() { return nullptr; }

}  // namespace deltastore

#endif
