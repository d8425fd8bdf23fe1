// Changed elements with AVX-512: compare, then compress positions, old and new bits, without a branch on what
// changed. Compressing straight to memory is slow on Zen 4, so whole registers are stored over each other.

#include "changed.hpp"

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

alignas(64) constexpr std::uint16_t kIota[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                                 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

DELTASTORE_AVX512 inline __m512i places(std::size_t at) {
    return _mm512_add_epi16(_mm512_load_si512(kIota), _mm512_set1_epi16(static_cast<short>(at)));
}

// For each width: the lanes that differ, the first n lanes, those lanes alone, and chosen lanes side by side.
template <typename Element>
struct Lanes;

template <>
struct Lanes<std::uint8_t> {
    using Mask = __mmask64;
    DELTASTORE_AVX512 static Mask differ(__m512i a, __m512i b) { return _mm512_cmpneq_epi8_mask(a, b); }
    DELTASTORE_AVX512 static Mask below(std::size_t n) { return ~Mask{0} >> (64 - n); }
    DELTASTORE_AVX512 static __m512i load(Mask mask, const void *p) { return _mm512_maskz_loadu_epi8(mask, p); }
    DELTASTORE_AVX512 static __m512i pick(Mask mask, __m512i v) { return _mm512_maskz_compress_epi8(mask, v); }
    DELTASTORE_AVX512 static __m512i all(std::uint8_t v) { return _mm512_set1_epi8(static_cast<char>(v)); }
    DELTASTORE_AVX512 static Mask negative(__m512i v) { return _mm512_movepi8_mask(v); }
    DELTASTORE_AVX512 static __m512i where(Mask mask, __m512i v) { return _mm512_maskz_mov_epi8(mask, v); }
    DELTASTORE_AVX512 static __m512i step(__m512i a, __m512i b) { return _mm512_abs_epi8(_mm512_sub_epi8(b, a)); }
    DELTASTORE_AVX512 static Mask reaches(__m512i v, __m512i w) { return _mm512_cmpge_epu8_mask(v, w); }
    DELTASTORE_AVX512 static __m512i more(__m512i v, Mask mask) { return _mm512_mask_add_epi8(v, mask, v, all(1)); }
    DELTASTORE_AVX512 static void narrow(std::uint8_t *out, Mask mask, __m512i v) {
        _mm512_mask_storeu_epi8(out, mask, v);
    }
    DELTASTORE_AVX512 static void put(std::uint8_t *out, Mask mask, __m512i v) {
        _mm512_mask_storeu_epi8(out, mask, v);
    }
};

template <>
struct Lanes<std::uint16_t> {
    using Mask = __mmask32;
    DELTASTORE_AVX512 static Mask differ(__m512i a, __m512i b) { return _mm512_cmpneq_epi16_mask(a, b); }
    DELTASTORE_AVX512 static Mask below(std::size_t n) { return ~Mask{0} >> (32 - n); }
    DELTASTORE_AVX512 static __m512i load(Mask mask, const void *p) { return _mm512_maskz_loadu_epi16(mask, p); }
    DELTASTORE_AVX512 static __m512i pick(Mask mask, __m512i v) { return _mm512_maskz_compress_epi16(mask, v); }
    DELTASTORE_AVX512 static __m512i all(std::uint16_t v) { return _mm512_set1_epi16(static_cast<short>(v)); }
    DELTASTORE_AVX512 static Mask negative(__m512i v) { return _mm512_movepi16_mask(v); }
    DELTASTORE_AVX512 static __m512i where(Mask mask, __m512i v) { return _mm512_maskz_mov_epi16(mask, v); }
    DELTASTORE_AVX512 static __m512i step(__m512i a, __m512i b) { return _mm512_abs_epi16(_mm512_sub_epi16(b, a)); }
    DELTASTORE_AVX512 static Mask reaches(__m512i v, __m512i w) { return _mm512_cmpge_epu16_mask(v, w); }
    DELTASTORE_AVX512 static __m512i more(__m512i v, Mask mask) { return _mm512_mask_add_epi16(v, mask, v, all(1)); }
    DELTASTORE_AVX512 static void narrow(std::uint8_t *out, Mask mask, __m512i v) {
        _mm256_mask_storeu_epi8(out, mask, _mm512_cvtepi16_epi8(v));
    }
    DELTASTORE_AVX512 static void put(std::uint16_t *out, Mask mask, __m512i v) {
        _mm512_mask_storeu_epi16(out, mask, v);
    }
};

template <>
struct Lanes<std::uint32_t> {
    using Mask = __mmask16;
    DELTASTORE_AVX512 static Mask differ(__m512i a, __m512i b) { return _mm512_cmpneq_epi32_mask(a, b); }
    DELTASTORE_AVX512 static Mask below(std::size_t n) { return static_cast<Mask>(0xFFFFu >> (16 - n)); }
    DELTASTORE_AVX512 static __m512i load(Mask mask, const void *p) { return _mm512_maskz_loadu_epi32(mask, p); }
    DELTASTORE_AVX512 static __m512i pick(Mask mask, __m512i v) { return _mm512_maskz_compress_epi32(mask, v); }
    DELTASTORE_AVX512 static __m512i all(std::uint32_t v) { return _mm512_set1_epi32(static_cast<int>(v)); }
    DELTASTORE_AVX512 static Mask negative(__m512i v) { return _mm512_movepi32_mask(v); }
    DELTASTORE_AVX512 static __m512i where(Mask mask, __m512i v) { return _mm512_maskz_mov_epi32(mask, v); }
    DELTASTORE_AVX512 static __m512i step(__m512i a, __m512i b) { return _mm512_abs_epi32(_mm512_sub_epi32(b, a)); }
    DELTASTORE_AVX512 static Mask reaches(__m512i v, __m512i w) { return _mm512_cmpge_epu32_mask(v, w); }
    DELTASTORE_AVX512 static __m512i more(__m512i v, Mask mask) { return _mm512_mask_add_epi32(v, mask, v, all(1)); }
    DELTASTORE_AVX512 static void narrow(std::uint8_t *out, Mask mask, __m512i v) {
        _mm_mask_storeu_epi8(out, mask, _mm512_cvtepi32_epi8(v));
    }
    DELTASTORE_AVX512 static void put(std::uint32_t *out, Mask mask, __m512i v) {
        _mm512_mask_storeu_epi32(out, mask, v);
    }
};

template <>
struct Lanes<std::uint64_t> {
    using Mask = __mmask8;
    DELTASTORE_AVX512 static Mask differ(__m512i a, __m512i b) { return _mm512_cmpneq_epi64_mask(a, b); }
    DELTASTORE_AVX512 static Mask below(std::size_t n) { return static_cast<Mask>(0xFFu >> (8 - n)); }
    DELTASTORE_AVX512 static __m512i load(Mask mask, const void *p) { return _mm512_maskz_loadu_epi64(mask, p); }
    DELTASTORE_AVX512 static __m512i pick(Mask mask, __m512i v) { return _mm512_maskz_compress_epi64(mask, v); }
    DELTASTORE_AVX512 static __m512i all(std::uint64_t v) { return _mm512_set1_epi64(static_cast<long long>(v)); }
    DELTASTORE_AVX512 static Mask negative(__m512i v) { return _mm512_movepi64_mask(v); }
    DELTASTORE_AVX512 static __m512i where(Mask mask, __m512i v) { return _mm512_maskz_mov_epi64(mask, v); }
    DELTASTORE_AVX512 static __m512i step(__m512i a, __m512i b) { return _mm512_abs_epi64(_mm512_sub_epi64(b, a)); }
    DELTASTORE_AVX512 static Mask reaches(__m512i v, __m512i w) { return _mm512_cmpge_epu64_mask(v, w); }
    DELTASTORE_AVX512 static __m512i more(__m512i v, Mask mask) { return _mm512_mask_add_epi64(v, mask, v, all(1)); }
    DELTASTORE_AVX512 static void narrow(std::uint8_t *out, Mask mask, __m512i v) {
        _mm_mask_storeu_epi8(out, mask, _mm512_cvtepi64_epi8(v));
    }
    DELTASTORE_AVX512 static void put(std::uint64_t *out, Mask mask, __m512i v) {
        _mm512_mask_storeu_epi64(out, mask, v);
    }
};

// What is chosen from one vector. A store of 64 bytes mostly crosses a cache line, which costs more than all the
// rest; so where 16 bytes hold what was chosen, as they do where few elements changed, only those are stored.
template <typename Element>
DELTASTORE_AVX512 inline void append(typename Lanes<Element>::Mask mask, __m512i was, __m512i is, std::size_t at,
                                     ChangedList<Element> &list) {
    constexpr std::size_t held = sizeof(Element) < 2 ? 8 : 16 / sizeof(Element);
    const auto count = static_cast<std::size_t>(_mm_popcnt_u64(mask));
    const auto low = static_cast<__mmask32>(mask);
    const __m512i before = Lanes<Element>::pick(mask, was);
    const __m512i after = Lanes<Element>::pick(mask, is);
    const __m512i here = _mm512_maskz_compress_epi16(low, places(at));
    if (count <= held) {
        _mm_storeu_si128(reinterpret_cast<__m128i *>(list.at + list.count), _mm512_castsi512_si128(here));
        _mm_storeu_si128(reinterpret_cast<__m128i *>(list.before + list.count), _mm512_castsi512_si128(before));
        _mm_storeu_si128(reinterpret_cast<__m128i *>(list.after + list.count), _mm512_castsi512_si128(after));
    } else {
        _mm512_storeu_si512(list.at + list.count, here);
        _mm512_storeu_si512(list.before + list.count, before);
        _mm512_storeu_si512(list.after + list.count, after);
    }
    if constexpr (sizeof(Element) == 1) {
        const auto high = static_cast<__mmask32>(mask >> 32);
        _mm512_storeu_si512(list.at + list.count + static_cast<std::size_t>(_mm_popcnt_u32(low)),
                            _mm512_maskz_compress_epi16(high, places(at + 32)));
    }
    list.count += count;
}

template <typename Element>
DELTASTORE_AVX512 void scan(const unsigned char *before, const unsigned char *after, std::size_t count,
                            std::size_t first, ChangedList<Element> &shared) {
    using L = Lanes<Element>;
    constexpr std::size_t lanes = 64 / sizeof(Element);
    constexpr std::size_t group = 4;  // vectors that are passed over together where nothing changed
    // Whether a group is passed over is a branch that nothing foretells where every other group has changes; so it is
    // only taken while few have. `recent` is 256 times the part of the last groups that had.
    constexpr unsigned often = 88;
    unsigned recent = 0;
    ChangedList<Element> list = shared;
    std::size_t k = 0;
    for (; k + group * lanes <= count; k += group * lanes) {
        __m512i was[group];
        __m512i is[group];
        typename L::Mask mask[group];
        for (std::size_t v = 0; v < group; ++v) {
            const std::size_t at = (k + v * lanes) * sizeof(Element);
            was[v] = _mm512_loadu_si512(before + at);
            is[v] = _mm512_loadu_si512(after + at);
            mask[v] = L::differ(was[v], is[v]);
        }
        const bool equal = (mask[0] | mask[1] | mask[2] | mask[3]) == 0;
        recent -= recent / 16;
        if (recent < often && equal) continue;
        recent += equal ? 0 : 16;
        for (std::size_t v = 0; v < group; ++v) append<Element>(mask[v], was[v], is[v], first + k + v * lanes, list);
    }
    for (; k < count; k += lanes) {
        const auto within = L::below(count - k < lanes ? count - k : lanes);
        const __m512i was = L::load(within, before + k * sizeof(Element));
        const __m512i is = L::load(within, after + k * sizeof(Element));
        const auto mask = L::differ(was, is);
        if (mask != 0) append<Element>(mask, was, is, first + k, list);
    }
    shared.count = list.count;
}

// As classify_steps, with the compares' masks counted as they come.
template <typename Element>
DELTASTORE_AVX512 void classify(const Element *before, const Element *after, std::size_t count, bool floating,
                                Element *residues, std::uint8_t *classes, std::uint32_t *tally) {
    using L = Lanes<Element>;
    constexpr std::size_t lanes = 64 / sizeof(Element);
    constexpr int widest = widest_class<Element>();
    const __m512i fold = L::all(floating ? static_cast<Element>(static_cast<Element>(~Element{0}) >> 1) : Element{0});
    std::uint64_t reached[widest + 1] = {count};  // elements of each class or a wider one
    for (std::size_t k = 0; k < count; k += lanes) {
        const auto within = L::below(count - k < lanes ? count - k : lanes);
        const __m512i was = L::load(within, before + k);
        const __m512i is = L::load(within, after + k);
        const __m512i low = _mm512_xor_si512(was, L::where(L::negative(was), fold));
        const __m512i high = _mm512_xor_si512(is, L::where(L::negative(is), fold));
        const __m512i size = L::step(low, high);
        __m512i found = _mm512_setzero_si512();
        for (int c = 0; c < widest; ++c) {
            const auto mask = L::reaches(size, L::all(static_cast<Element>(Element{1} << ((2 << c) - 1))));
            found = L::more(found, mask);
            reached[c + 1] += static_cast<std::uint64_t>(_mm_popcnt_u64(mask));
        }
        L::put(residues + k, within, high);
        L::narrow(classes + k, within, found);
    }
    for (int c = 0; c <= widest; ++c) {
        tally[c] += static_cast<std::uint32_t>(reached[c] - (c < widest ? reached[c + 1] : 0));
    }
}

}  // namespace

template <typename Element>
Scan<Element> avx512_scan() {
    return scan<Element>;
}

template <typename Element>
Classify<Element> avx512_classify() {
    return classify<Element>;
}

}  // namespace deltastore

#else

namespace deltastore {

template <typename Element>
Scan<Element> avx512_scan() {
    return scan_for<Element>(Instructions::portable);
}

template <typename Element>
Classify<Element> avx512_classify() {
    return classify_for<Element>(Instructions::portable);
}

}  // namespace deltastore

#endif

namespace deltastore {

#define DELTASTORE_AVX512_OF(Element) \
    template Scan<Element> avx512_scan<Element>(); \
    template Classify<Element> avx512_classify<Element>()

DELTASTORE_AVX512_OF(std::uint8_t);
DELTASTORE_AVX512_OF(std::uint16_t);
DELTASTORE_AVX512_OF(std::uint32_t);
DELTASTORE_AVX512_OF(std::uint64_t);

}  // namespace deltastore
