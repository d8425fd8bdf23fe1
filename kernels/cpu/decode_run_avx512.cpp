// 64 bits of the high section at a time: compressing 0..63 by them gives the places of their ones, up to 64 in
// one register. Then 16 positions at a time get their low bits: 16 fields start at a whole byte.

#include "decode_run.hpp"

#if defined(__GNUC__) && defined(__x86_64__)

#if !defined(__clang__)
// GCC 12 takes what its own header leaves undefined on purpose for a mistake.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include <algorithm>

#define DELTASTORE_AVX512 \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,bmi,bmi2,popcnt")))

namespace deltastore {
namespace {

constexpr std::uint32_t kLanes = 16;

struct Iota {
    alignas(64) unsigned char of[64]{};
};

constexpr Iota make_iota() {
    Iota iota;
    for (unsigned k = 0; k < 64; ++k) iota.of[k] = static_cast<unsigned char>(k);
    return iota;
}

constexpr Iota kIota = make_iota();

template <int part>
DELTASTORE_AVX512 inline void store_part(std::uint32_t *out, __m512i places, __m512i base) {
    const __m512i wide = _mm512_cvtepu8_epi32(_mm512_extracti32x4_epi32(places, part));
    const __m512i before = _mm512_sub_epi32(base, _mm512_set1_epi32(part * 16));
    _mm512_storeu_si512(out + part * 16, _mm512_add_epi32(wide, before));
}

// The high part of position i is the place of the i-th one, less i.
DELTASTORE_AVX512 Reason high_parts(const Run &run, const HighWords &words, std::uint32_t *positions,
                                    RunCursor &cursor) {
    const __m512i iota = _mm512_load_si512(kIota.of);
    const __m512i lanes = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(iota));
    std::uint32_t found = cursor.found;
    for (std::uint64_t word = cursor.word; word < words.end; ++word) {
        const std::uint64_t bits = section_word(run.high, words.bytes, word);
        const auto ones = static_cast<std::uint32_t>(_mm_popcnt_u64(bits));
        if (ones > run.count - found) return Reason::other_count_in_run;
        const __m512i places = _mm512_maskz_compress_epi8(static_cast<__mmask64>(bits), iota);
        const int first = static_cast<int>(static_cast<std::uint32_t>(word * 64) - found);
        const __m512i base = _mm512_sub_epi32(_mm512_set1_epi32(first), lanes);
        std::uint32_t *out = positions + found;
        store_part<0>(out, places, base);
        store_part<1>(out, places, base);
        store_part<2>(out, places, base);
        store_part<3>(out, places, base);
        found += ones;
    }
    cursor.word = words.end;
    cursor.found = found;
    return Reason::none;
}

// For each lane the four bytes that its field starts in, and where in them.
struct Fields {
    __m512i bytes;
    __m512i shift;
    __m512i mask;
};

DELTASTORE_AVX512 inline Fields fields_of(unsigned low_bits) {
    const __m512i lanes = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i *>(kIota.of)));
    const __m512i bit = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(static_cast<int>(low_bits)));
    const __m512i byte = _mm512_mullo_epi32(_mm512_srli_epi32(bit, 3), _mm512_set1_epi32(0x01010101));
    return {_mm512_add_epi32(byte, _mm512_set1_epi32(0x03020100)), _mm512_and_si512(bit, _mm512_set1_epi32(7)),
            _mm512_set1_epi32(static_cast<int>((1u << low_bits) - 1))};
}

DELTASTORE_AVX512 inline __m512i load_up_to(const unsigned char *from, const unsigned char *end) {
    const auto left = static_cast<std::size_t>(end - from);
    if (left >= 64) return _mm512_loadu_si512(from);
    return _mm512_maskz_loadu_epi8((std::uint64_t{1} << left) - 1, from);
}

DELTASTORE_AVX512 bool join(const Run &run, std::uint64_t elements, const unsigned char *end,
                            std::uint32_t *positions, RunCursor &cursor, std::uint32_t until) {
    const Fields fields = fields_of(run.low_bits);
    const __m128i up = _mm_cvtsi32_si128(static_cast<int>(run.low_bits));
    const std::uint32_t ready = cursor.ready;
    __m512i last = _mm512_set1_epi32(ready == 0 ? -1 : static_cast<int>(positions[ready - 1]));
    __mmask16 wrong = 0;
    const unsigned char *from = run.low + std::size_t{ready} / 8 * run.low_bits;
    for (std::uint32_t i = ready; i < until; i += kLanes, from += run.low_bits * 2) {
        const std::uint32_t here = std::min(until - i, kLanes);
        const __m512i bytes = _mm512_permutexvar_epi8(fields.bytes, load_up_to(from, end));
        const __m512i low = _mm512_and_si512(_mm512_srlv_epi32(bytes, fields.shift), fields.mask);
        const __m512i now = _mm512_or_si512(_mm512_sll_epi32(_mm512_loadu_si512(positions + i), up), low);
        const __m512i before = _mm512_alignr_epi32(now, last, kLanes - 1);
        const auto lanes = static_cast<__mmask16>((1u << here) - 1);
        wrong = static_cast<__mmask16>(wrong | _mm512_mask_cmple_epi32_mask(lanes, now, before));
        _mm512_storeu_si512(positions + i, now);
        last = now;
    }
    cursor.ready = until;
    return wrong == 0 && (until == 0 || positions[until - 1] < elements);
}

DELTASTORE_AVX512 Reason decode_run(const Run &run, std::uint64_t elements, const unsigned char *end,
                                    std::uint32_t *positions, RunCursor &cursor, std::uint64_t count) {
    const HighWords words = high_words(run, elements, cursor, count);
    Reason reason = high_parts(run, words, positions, cursor);
    if (reason == Reason::none && words.last) reason = check_high_end(run, elements, cursor.found);
    if (reason != Reason::none) return reason;
    const std::uint32_t until = words.last ? cursor.found : cursor.found / kLanes * kLanes;
    return join(run, elements, end, positions, cursor, until) ? Reason::none : Reason::positions;
}

}  // namespace

DecodeRun avx512_run_decoder() { return decode_run; }

}  // namespace deltastore

#else

namespace deltastore {

DecodeRun avx512_run_decoder() { return nullptr; }

}  // namespace deltastore

#endif
