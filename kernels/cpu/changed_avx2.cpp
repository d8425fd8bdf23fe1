// Changed elements with AVX2: 64 bytes at a time become one mask, whose set bits are walked.

#include "changed.hpp"

#if defined(__GNUC__) && defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "changed_steps.hpp"

#define DELTASTORE_AVX2 __attribute__((target("avx2,bmi,bmi2,popcnt")))

namespace deltastore {
namespace {

constexpr std::size_t kStep = 64;  // bytes of each side that make one mask

template <typename Element>
DELTASTORE_AVX2 inline __m256i equal(__m256i a, __m256i b) {
    if constexpr (sizeof(Element) == 1) return _mm256_cmpeq_epi8(a, b);
    if constexpr (sizeof(Element) == 2) return _mm256_cmpeq_epi16(a, b);
    if constexpr (sizeof(Element) == 4) return _mm256_cmpeq_epi32(a, b);
    return _mm256_cmpeq_epi64(a, b);
}

// One bit for each byte of an element that differs.
template <typename Element>
DELTASTORE_AVX2 inline std::uint32_t differ(__m256i was, __m256i is) {
    return ~static_cast<std::uint32_t>(_mm256_movemask_epi8(equal<Element>(was, is)));
}

// One bit for each element: that of its first byte.
template <typename Element>
constexpr std::uint64_t kFirstBytes = sizeof(Element) == 1   ? ~std::uint64_t{0}
                                      : sizeof(Element) == 2 ? 0x5555555555555555u
                                      : sizeof(Element) == 4 ? 0x1111111111111111u
                                                             : 0x0101010101010101u;

template <typename Element>
inline void append(const Element *was, const Element *is, std::size_t lane, std::size_t at,
                   ChangedList<Element> &list) {
    list.at[list.count] = static_cast<std::uint16_t>(at);
    list.before[list.count] = was[lane];
    list.after[list.count] = is[lane];
    ++list.count;
}

template <typename Element>
DELTASTORE_AVX2 void scan(const unsigned char *before, const unsigned char *after, std::size_t count,
                          std::size_t first, ChangedList<Element> &shared) {
    constexpr std::size_t lanes = kStep / sizeof(Element);
    ChangedList<Element> list = shared;
    std::size_t k = 0;
    for (; k + lanes <= count; k += lanes) {
        const auto *was = reinterpret_cast<const __m256i *>(before + k * sizeof(Element));
        const auto *is = reinterpret_cast<const __m256i *>(after + k * sizeof(Element));
        const __m256i is0 = _mm256_loadu_si256(is);
        const __m256i is1 = _mm256_loadu_si256(is + 1);
        const std::uint64_t low = differ<Element>(_mm256_loadu_si256(was), is0);
        const std::uint64_t high = differ<Element>(_mm256_loadu_si256(was + 1), is1);
        std::uint64_t mask = (low | high << 32) & kFirstBytes<Element>;
        if (mask == 0) continue;
        // What is listed comes from the registers that were compared: memory may hold other bits by now.
        Element new_lanes[lanes];
        Element old_lanes[lanes];
        std::memcpy(new_lanes, &is0, 32);
        std::memcpy(new_lanes + lanes / 2, &is1, 32);
        std::memcpy(old_lanes, was, kStep);
        for (; mask != 0; mask = _blsr_u64(mask)) {
            const std::size_t lane = static_cast<std::size_t>(_tzcnt_u64(mask)) / sizeof(Element);
            append(old_lanes, new_lanes, lane, first + k + lane, list);
        }
    }
    for (; k < count; ++k) {
        Element was;
        Element is;
        std::memcpy(&was, before + k * sizeof(Element), sizeof was);
        std::memcpy(&is, after + k * sizeof(Element), sizeof is);
        if (was != is) append(&was, &is, 0, first + k, list);
    }
    shared.count = list.count;
}

template <typename Element>
DELTASTORE_AVX2 void classify(const Element *before, const Element *after, std::size_t count, bool floating,
                              Element *residues, std::uint8_t *classes, std::uint32_t *tally) {
    classify_steps(before, after, count, floating, residues, classes, tally);
}

}  // namespace

template <typename Element>
Scan<Element> avx2_scan() {
    return scan<Element>;
}

template <typename Element>
Classify<Element> avx2_classify() {
    return classify<Element>;
}

}  // namespace deltastore

#else

namespace deltastore {

template <typename Element>
Scan<Element> avx2_scan() {
    return scan_for<Element>(Instructions::portable);
}

template <typename Element>
Classify<Element> avx2_classify() {
    return classify_for<Element>(Instructions::portable);
}

}  // namespace deltastore

#endif

namespace deltastore {

#define DELTASTORE_AVX2_OF(Element) \
    template Scan<Element> avx2_scan<Element>(); \
    template Classify<Element> avx2_classify<Element>()

DELTASTORE_AVX2_OF(std::uint8_t);
DELTASTORE_AVX2_OF(std::uint16_t);
DELTASTORE_AVX2_OF(std::uint32_t);
DELTASTORE_AVX2_OF(std::uint64_t);

}  // namespace deltastore
