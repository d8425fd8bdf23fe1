#include "encode_pick.hpp"

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
#endif

namespace deltastore {
namespace {

// Without a branch on what each element is: what does not belong is overwritten by the next. `kept` and `moved` of
// the elements below k are where they belong.
template <typename Element>
void pick_from(std::size_t k, std::size_t kept, std::size_t moved, ChangedElements<Element> &elements, int last,
               ChangedElements<Element> &rest) {
    const ChangedElements<Element> here = elements;  // copies: a store might change what is referred to
    const ChangedElements<Element> there = rest;
    for (; k < here.count; ++k) {
        const std::uint32_t position = here.positions[k];
        const Element residue = here.residues[k];
        const std::uint8_t width = here.classes[k];
        const std::size_t keep = width <= last ? 1 : 0;
        here.positions[kept] = position;
        here.residues[kept] = residue;
        there.positions[moved] = position;
        there.residues[moved] = residue;
        there.classes[moved] = width;
        kept += keep;
        moved += 1 - keep;
    }
    elements.count = kept;
    rest.count = moved;
}

template <typename Element>
void pick(ChangedElements<Element> &elements, int last, ChangedElements<Element> &rest) {
    pick_from(0, 0, 0, elements, last, rest);
}

#if defined(__GNUC__) && defined(__x86_64__)

#define DELTASTORE_AVX512 \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt,bmi,bmi2")))

// 16 entries in registers, which may be overwritten where they came from. choose() stores those of the mask side by
// side; 16 entries of `out` are lost.
template <typename Entry>
struct Sixteen;

template <>
struct Sixteen<std::uint8_t> {
    DELTASTORE_AVX512 explicit Sixteen(const std::uint8_t *in)
        : values(_mm_loadu_si128(reinterpret_cast<const __m128i *>(in))) {}
    DELTASTORE_AVX512 void choose(__mmask16 mask, std::uint8_t *out) const {
        _mm_storeu_si128(reinterpret_cast<__m128i *>(out), _mm_maskz_compress_epi8(mask, values));
    }
    __m128i values;
};

template <>
struct Sixteen<std::uint16_t> {
    DELTASTORE_AVX512 explicit Sixteen(const std::uint16_t *in)
        : values(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(in))) {}
    DELTASTORE_AVX512 void choose(__mmask16 mask, std::uint16_t *out) const {
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(out), _mm256_maskz_compress_epi16(mask, values));
    }
    __m256i values;
};

template <>
struct Sixteen<std::uint32_t> {
    DELTASTORE_AVX512 explicit Sixteen(const std::uint32_t *in) : values(_mm512_loadu_si512(in)) {}
    DELTASTORE_AVX512 void choose(__mmask16 mask, std::uint32_t *out) const {
        _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(mask, values));
    }
    __m512i values;
};

template <>
struct Sixteen<std::uint64_t> {
    DELTASTORE_AVX512 explicit Sixteen(const std::uint64_t *in)
        : low(_mm512_loadu_si512(in)), high(_mm512_loadu_si512(in + 8)) {}
    DELTASTORE_AVX512 void choose(__mmask16 mask, std::uint64_t *out) const {
        const auto first = static_cast<__mmask8>(mask);
        _mm512_storeu_si512(out, _mm512_maskz_compress_epi64(first, low));
        _mm512_storeu_si512(out + _mm_popcnt_u32(first),
                            _mm512_maskz_compress_epi64(static_cast<__mmask8>(mask >> 8), high));
    }
    __m512i low, high;
};

template <typename Element>
DELTASTORE_AVX512 void pick_avx512(ChangedElements<Element> &elements, int last, ChangedElements<Element> &rest) {
    constexpr std::size_t step = 16;
    const __m128i widest = _mm_set1_epi8(static_cast<char>(last));
    const ChangedElements<Element> here = elements;
    const ChangedElements<Element> there = rest;
    std::size_t kept = 0;
    std::size_t k = 0;
    for (; k + step <= here.count; k += step) {
        const Sixteen<std::uint32_t> positions(here.positions + k);
        const Sixteen<Element> residues(here.residues + k);
        const Sixteen<std::uint8_t> classes(here.classes + k);
        const __mmask16 keep = _mm_cmple_epu8_mask(classes.values, widest);
        const auto move = static_cast<__mmask16>(~keep);
        const std::size_t moved = k - kept;
        positions.choose(keep, here.positions + kept);
        residues.choose(keep, here.residues + kept);
        positions.choose(move, there.positions + moved);
        residues.choose(move, there.residues + moved);
        classes.choose(move, there.classes + moved);
        kept += static_cast<std::size_t>(_mm_popcnt_u32(keep));
    }
    pick_from(k, kept, k - kept, elements, last, rest);
}

#endif

}  // namespace

template <typename Element>
Pick<Element> pick_for(Instructions instructions) {
#if defined(__GNUC__) && defined(__x86_64__)
    if (instructions == Instructions::avx512) return pick_avx512<Element>;
#endif
    (void)instructions;
    return pick<Element>;
}

template Pick<std::uint8_t> pick_for<std::uint8_t>(Instructions);
template Pick<std::uint16_t> pick_for<std::uint16_t>(Instructions);
template Pick<std::uint32_t> pick_for<std::uint32_t>(Instructions);
template Pick<std::uint64_t> pick_for<std::uint64_t>(Instructions);

}  // namespace deltastore
