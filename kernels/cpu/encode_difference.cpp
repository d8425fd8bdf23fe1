#include "encode_difference.hpp"

#if defined(__GNUC__) && defined(__x86_64__)
#if !defined(__clang__)
// GCC 12 takes the don't-care operands in its own header for forgotten ones.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#define DELTASTORE_AVX512 \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt,bmi,bmi2")))

namespace deltastore {
namespace {

constexpr std::size_t kLanes = 8;
constexpr std::size_t kNear = 32;  // blocks whose factors are kept in registers
constexpr int kBlockBits = 11;
static_assert(std::size_t{1} << kBlockBits == kBlock, "a block is a power of two");

DELTASTORE_AVX512 inline __m512i all(std::uint64_t v) { return _mm512_set1_epi64(static_cast<long long>(v)); }

DELTASTORE_AVX512 inline __m512i widened(const std::uint8_t *p) {
    return _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p)));
}
DELTASTORE_AVX512 inline __m512i widened(const std::uint16_t *p) {
    return _mm512_cvtepu16_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
}
DELTASTORE_AVX512 inline __m512i widened(const std::uint32_t *p) {
    return _mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(p)));
}
DELTASTORE_AVX512 inline __m512i widened(const std::uint64_t *p) { return _mm512_loadu_si512(p); }

// mix(x) | 1 in every lane. `x` comes with the first constant of mix added.
DELTASTORE_AVX512 inline __m512i mixed(__m512i x) {
    x = _mm512_mullo_epi64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 30)), all(0xBF58476D1CE4E5B9u));
    x = _mm512_mullo_epi64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 27)), all(0x94D049BB133111EBu));
    return _mm512_or_si512(_mm512_xor_si512(x, _mm512_srli_epi64(x, 31)), all(1));
}

DELTASTORE_AVX512 inline __m512i block_factors(std::uint64_t first) {
    const __m512i block = _mm512_add_epi64(all(first), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
    return mixed(_mm512_add_epi64(_mm512_and_si512(block, all(~std::uint64_t{0} >> kBlockBits)),
                                  all(0x9E3779B97F4A7C15u)));
}

// A multiple of kLanes elements, whose flat indices are `flat` + at[k] and lie in kNear blocks from `first` on.
// Factors of positions are worked out anew: that takes less time than to gather them from a table.
template <typename Element, typename Position>
DELTASTORE_AVX512 std::uint64_t near_difference(std::uint64_t flat, std::uint64_t first, const Position *at,
                                                const Element *before, const Element *after, std::size_t count) {
    const __m512i factors[4] = {block_factors(first), block_factors(first + 8), block_factors(first + 16),
                                block_factors(first + 24)};
    const __m512i from = all(flat - first * kBlock);
    __m512i total = _mm512_setzero_si512();
    for (std::size_t k = 0; k < count; k += kLanes) {
        const __m512i place = _mm512_add_epi64(from, widened(at + k));  // relative to the first block
        const __m512i block = _mm512_srli_epi64(place, kBlockBits);
        const __m512i within = _mm512_and_si512(place, all(kBlock - 1));
        const __m512i factor = mixed(_mm512_add_epi64(within, all(0x64656C746173746Fu + 0x9E3779B97F4A7C15u)));
        const __m512i low = _mm512_permutex2var_epi64(factors[0], block, factors[1]);
        const __m512i high = _mm512_permutex2var_epi64(factors[2], block, factors[3]);
        const __m512i of_block = _mm512_mask_mov_epi64(low, _mm512_test_epi64_mask(block, all(16)), high);
        const __m512i change = _mm512_sub_epi64(widened(after + k), widened(before + k));
        total = _mm512_add_epi64(total, _mm512_mullo_epi64(_mm512_mullo_epi64(change, factor), of_block));
    }
    std::uint64_t lanes[kLanes];
    _mm512_storeu_si512(lanes, total);
    std::uint64_t sum = 0;  // not _mm512_reduce_add_epi64: its last addition is one of signed numbers
    for (const std::uint64_t lane : lanes) sum += lane;
    return sum;
}

template <typename Element, typename Position>
std::uint64_t difference_avx512(const Places &places, Stretch &stretch, std::uint64_t base, const Position *at,
                                const Element *before, const Element *after, std::size_t count) {
    constexpr std::size_t few = 3 * kLanes;  // what the factors of blocks are not worth
    std::uint64_t total = 0;
    std::size_t k = 0;
    while (k < count) {
        const std::uint64_t p = base + at[k];
        if (p >= stretch.end) stretch = places.at(p);
        const std::uint64_t flat = stretch.flat + (p - stretch.first);
        const std::uint64_t limit = std::min(stretch.end, p + (kNear * kBlock - flat % kBlock));
        std::size_t end = count;
        if (base + at[count - 1] >= limit) {
            end = static_cast<std::size_t>(
                std::lower_bound(at + k, at + count, limit - base,
                                 [](Position a, std::uint64_t b) { return a < b; }) - at);
        }
        if (end - k >= few) {
            const std::size_t whole = (end - k) / kLanes * kLanes;
            total += near_difference(flat - at[k], flat / kBlock, at + k, before + k, after + k, whole) * stretch.seed;
            k += whole;
        }
        total += position_difference(places, stretch, base, at + k, before + k, after + k, end - k);
        k = end;
    }
    return total;
}

}  // namespace
}  // namespace deltastore

#endif

namespace deltastore {

template <typename Element, typename Position>
Difference<Element, Position> difference_for(Instructions instructions) {
#if defined(__GNUC__) && defined(__x86_64__)
    if (instructions == Instructions::avx512) return difference_avx512<Element, Position>;
#endif
    (void)instructions;
    return position_difference<Element, Position>;
}

#define DELTASTORE_DIFFERENCE_OF(Element) \
    template Difference<Element, std::uint16_t> difference_for<Element, std::uint16_t>(Instructions); \
    template Difference<Element, std::uint32_t> difference_for<Element, std::uint32_t>(Instructions)

DELTASTORE_DIFFERENCE_OF(std::uint8_t);
DELTASTORE_DIFFERENCE_OF(std::uint16_t);
DELTASTORE_DIFFERENCE_OF(std::uint32_t);
DELTASTORE_DIFFERENCE_OF(std::uint64_t);

}  // namespace deltastore
