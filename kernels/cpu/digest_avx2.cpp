// One instruction multiplies 16 pairs of signed 16-bit numbers and adds neighbours into 32 bits. So T is cut
// into four signed digits of 16 bits, T = d0 + d1*2^16 + d2*2^32 + d3*2^48 mod 2^64, and a 16-bit element u
// is read as the signed number u - 2^15; what that leaves out, 2^15 * sum of T, is a constant.
//
// d2 and d3 need their sums only mod 2^32, which wrapping addition gives. d0 and d1 need theirs exactly: the
// sum of the high halves (p >> 16) is kept beside the wrapped sum, and the two together give the true sum.

#include "digest_avx2.hpp"

#include "weights.hpp"

#if defined(__GNUC__) && defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#define DELTASTORE_AVX2 __attribute__((target("avx2")))

namespace deltastore {
namespace {

constexpr std::size_t kLanes = 16;      // elements in one vector
constexpr std::size_t kGroup = 32;      // elements whose digits lie together
constexpr std::size_t kPrefetch = 8192; // bytes ahead, into the second-level cache; a hint, never a read
constexpr std::size_t kCacheLine = 64;  // bytes

struct Digits {
    // Interleaved, so that the table is one stream of cache lines and not four that evict each other.
    std::int16_t of[kBlock / kGroup][4][kGroup]{};
    std::uint64_t bias = 0;  // 2^15 * sum of T
    bool sound = true;       // no pair product can overflow 32 bits where the exact sum is needed
};

constexpr Digits make_digits() {
    Digits digits;
    for (std::size_t j = 0; j < kBlock; ++j) {
        std::uint64_t rest = position_factor(j);
        digits.bias += rest << 15;
        for (std::size_t d = 0; d < 4; ++d) {
            const std::int32_t carry = (rest & 0x8000) != 0 ? 0x10000 : 0;
            const std::int32_t digit = static_cast<std::int32_t>(rest & 0xFFFF) - carry;
            digits.of[j / kGroup][d][j % kGroup] = static_cast<std::int16_t>(digit);
            digits.sound = digits.sound && digit != -0x8000;
            rest = (rest - static_cast<std::uint64_t>(std::int64_t{digit})) >> 16;
        }
    }
    return digits;
}

alignas(64) constexpr Digits kDigits = make_digits();
static_assert(kDigits.sound, "(-2^15)^2 + (-2^15)^2 does not fit a signed 32-bit lane");

struct Sums {
    __m256i wrapped[4];  // per digit: the sum of pair products mod 2^32
    __m256i high[2];     // for d0 and d1: the sum of the products' high halves; at most 128 * 2^15
};

DELTASTORE_AVX2 inline __m256i digit(std::size_t group, std::size_t d, std::size_t lane) {
    return _mm256_load_si256(reinterpret_cast<const __m256i *>(&kDigits.of[group][d][lane]));
}

DELTASTORE_AVX2 inline void add(Sums &sums, __m256i elements, std::size_t group, std::size_t lane) {
    for (std::size_t d = 0; d < 4; ++d) {
        const __m256i product = _mm256_madd_epi16(elements, digit(group, d, lane));
        sums.wrapped[d] = _mm256_add_epi32(sums.wrapped[d], product);
        if (d < 2) sums.high[d] = _mm256_add_epi32(sums.high[d], _mm256_srai_epi32(product, 16));
    }
}

DELTASTORE_AVX2 inline std::uint64_t total(const Sums &sums) {
    std::uint32_t wrapped[4][8];
    std::int32_t high[2][8];
    std::memcpy(wrapped, sums.wrapped, sizeof wrapped);
    std::memcpy(high, sums.high, sizeof high);
    std::uint64_t result = 0;
    for (std::size_t lane = 0; lane < 8; ++lane) {
        for (std::size_t d = 0; d < 4; ++d) {
            std::uint64_t sum = wrapped[d][lane];
            if (d < 2) {
                // The low halves add up to less than 2^32, so wrapped - high * 2^16 is their true sum.
                const std::uint64_t above = static_cast<std::uint64_t>(std::int64_t{high[d][lane]}) << 16;
                sum = above + static_cast<std::uint32_t>(sum - above);
            }
            result += sum << (16 * d);
        }
    }
    return result;
}

DELTASTORE_AVX2 std::uint64_t block_sum_u16(const unsigned char *bits) {
    const __m256i offset = _mm256_set1_epi16(-0x8000);
    Sums sums{};
    for (std::size_t group = 0; group < kBlock / kGroup; ++group) {
        const unsigned char *here = bits + group * kGroup * 2;
        __builtin_prefetch(here + kPrefetch, 0, 2);
        for (std::size_t lane = 0; lane < kGroup; lane += kLanes) {
            const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(here + lane * 2));
            add(sums, _mm256_xor_si256(raw, offset), group, lane);
        }
    }
    return total(sums) + kDigits.bias;
}

DELTASTORE_AVX2 std::uint64_t block_sum_u8(const unsigned char *bits) {
    Sums sums{};
    for (std::size_t group = 0; group < kBlock / kGroup; ++group) {
        const unsigned char *here = bits + group * kGroup;
        if (group * kGroup % kCacheLine == 0) __builtin_prefetch(here + kPrefetch, 0, 2);
        for (std::size_t lane = 0; lane < kGroup; lane += kLanes) {
            const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i *>(here + lane));
            add(sums, _mm256_cvtepu8_epi16(raw), group, lane);
        }
    }
    return total(sums);
}

}  // namespace

BlockSum avx2_block_sum(std::size_t bytes) {
    if (!__builtin_cpu_supports("avx2")) return nullptr;
    if (bytes == 1) return block_sum_u8;
    if (bytes == 2) return block_sum_u16;
    return nullptr;
}

}  // namespace deltastore

#else

namespace deltastore {

BlockSum avx2_block_sum(std::size_t) { return nullptr; }

}  // namespace deltastore

#endif
