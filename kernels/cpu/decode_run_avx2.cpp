// A byte of the high section at a time: a table gives the places of its ones, up to 8, and they are widened in
// one instruction. Then 8 positions at a time get their low bits: 8 fields start at a whole byte.

#include "decode_run.hpp"

#if defined(__GNUC__) && defined(__x86_64__)

#include <immintrin.h>

#define DELTASTORE_AVX2 __attribute__((target("avx2,bmi,bmi2,popcnt")))

namespace deltastore {
namespace {

constexpr std::uint32_t kLanes = 8;
constexpr std::uint32_t kGroup = 16;  // what positions become ready in
constexpr std::ptrdiff_t kReach = 32;  // bytes from the start of 8 fields that two loads touch: at most 25

struct OnesOfByte {
    alignas(64) unsigned char place[256][8]{};
};

constexpr OnesOfByte make_ones() {
    OnesOfByte ones;
    for (unsigned byte = 0; byte < 256; ++byte) {
        unsigned found = 0;
        for (unsigned bit = 0; bit < 8; ++bit) {
            if ((byte >> bit & 1) != 0) ones.place[byte][found++] = static_cast<unsigned char>(bit);
        }
    }
    return ones;
}

constexpr OnesOfByte kOnes = make_ones();

// The high part of position i is the place of the i-th one, less i.
DELTASTORE_AVX2 Reason high_parts(const Run &run, const HighWords &words, std::uint32_t *positions,
                                  RunCursor &cursor) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    std::uint32_t found = cursor.found;
    for (std::uint64_t word = cursor.word; word < words.end; ++word) {
        std::uint64_t bits = section_word(run.high, words.bytes, word);
        if (static_cast<std::uint32_t>(_mm_popcnt_u64(bits)) > run.count - found) return Reason::other_count_in_run;
        for (std::uint64_t first = word * 64; bits != 0; first += 8, bits >>= 8) {
            const unsigned byte = bits & 255;
            const __m128i places = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(kOnes.place[byte]));
            const int base = static_cast<int>(static_cast<std::uint32_t>(first) - found);
            const __m256i high = _mm256_sub_epi32(_mm256_set1_epi32(base), lanes);
            _mm256_storeu_si256(reinterpret_cast<__m256i *>(positions + found),
                                _mm256_add_epi32(_mm256_cvtepu8_epi32(places), high));
            found += static_cast<std::uint32_t>(_mm_popcnt_u32(byte));
        }
    }
    cursor.word = words.end;
    cursor.found = found;
    return Reason::none;
}

// For each lane the four bytes that its field starts in, and where in them; lanes 4 to 7 count from the byte
// that field 4 starts in.
struct Fields {
    __m256i bytes;
    __m256i shift;
    __m256i mask;
    std::size_t half;
};

DELTASTORE_AVX2 inline Fields fields_of(unsigned low_bits) {
    const unsigned half = low_bits * 4;
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3);
    const __m256i rest = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    const __m256i bit = _mm256_add_epi32(_mm256_mullo_epi32(lanes, _mm256_set1_epi32(static_cast<int>(low_bits))),
                                         _mm256_mullo_epi32(rest, _mm256_set1_epi32(static_cast<int>(half % 8))));
    const __m256i byte = _mm256_mullo_epi32(_mm256_srli_epi32(bit, 3), _mm256_set1_epi32(0x01010101));
    return {_mm256_add_epi32(byte, _mm256_set1_epi32(0x03020100)), _mm256_and_si256(bit, _mm256_set1_epi32(7)),
            _mm256_set1_epi32(static_cast<int>((1u << low_bits) - 1)), half / 8};
}

DELTASTORE_AVX2 bool join(const Run &run, std::uint64_t elements, const unsigned char *end,
                          std::uint32_t *positions, RunCursor &cursor, std::uint32_t until) {
    const Fields fields = fields_of(run.low_bits);
    const __m128i up = _mm_cvtsi32_si128(static_cast<int>(run.low_bits));
    const __m256i turn = _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6);
    std::uint32_t i = cursor.ready;
    __m256i last = _mm256_set1_epi32(i == 0 ? -1 : static_cast<int>(positions[i - 1]));
    __m256i ascend = _mm256_set1_epi32(-1);
    const unsigned char *from = run.low + std::size_t{i} / 8 * run.low_bits;
    for (; until - i >= kLanes && end - from >= kReach; i += kLanes, from += run.low_bits) {
        const __m128i *first = reinterpret_cast<const __m128i *>(from);
        const __m128i *second = reinterpret_cast<const __m128i *>(from + fields.half);
        const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(first)),
                                                     _mm_loadu_si128(second), 1);
        const __m256i bytes = _mm256_shuffle_epi8(both, fields.bytes);
        const __m256i low = _mm256_and_si256(_mm256_srlv_epi32(bytes, fields.shift), fields.mask);
        __m256i *out = reinterpret_cast<__m256i *>(positions + i);
        const __m256i now = _mm256_or_si256(_mm256_sll_epi32(_mm256_loadu_si256(out), up), low);
        const __m256i turned = _mm256_permutevar8x32_epi32(now, turn);
        ascend = _mm256_and_si256(ascend, _mm256_cmpgt_epi32(now, _mm256_blend_epi32(turned, last, 1)));
        _mm256_storeu_si256(out, now);
        last = turned;
    }
    cursor.ready = i;
    return _mm256_movemask_epi8(ascend) == -1 && join_low_bits(run, elements, positions, cursor, until);
}

DELTASTORE_AVX2 Reason decode_run(const Run &run, std::uint64_t elements, const unsigned char *end,
                                  std::uint32_t *positions, RunCursor &cursor, std::uint64_t count) {
    const HighWords words = high_words(run, elements, cursor, count);
    Reason reason = high_parts(run, words, positions, cursor);
    if (reason == Reason::none && words.last) reason = check_high_end(run, elements, cursor.found);
    if (reason != Reason::none) return reason;
    const std::uint32_t until = words.last ? cursor.found : cursor.found / kGroup * kGroup;
    return join(run, elements, end, positions, cursor, until) ? Reason::none : Reason::positions;
}

}  // namespace

DecodeRun avx2_run_decoder() { return decode_run; }

}  // namespace deltastore

#else

namespace deltastore {

DecodeRun avx2_run_decoder() { return nullptr; }

}  // namespace deltastore

#endif
