#include "encode_high.hpp"

#include <cstring>

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
#endif

#if defined(__GNUC__)
#define DELTASTORE_INLINE inline __attribute__((always_inline))
#else
#define DELTASTORE_INLINE inline
#endif

namespace deltastore {
namespace {

constexpr std::size_t kGroup = 8;
constexpr std::size_t kFarthest = 56;  // bits between the first and the last of a group that one word holds

void set_bits(const std::uint32_t *positions, std::size_t start, std::size_t end, int low, unsigned char *out) {
    for (std::size_t k = start; k < end; ++k) {
        const std::size_t bit = (positions[k] >> low) + k;
        out[bit / 8] = static_cast<unsigned char>(out[bit / 8] | 1u << (bit % 8));
    }
}

// Neighbours lie two or three bits apart, so the bits of a group mostly fit a word. Only these words depend on each
// other: the one written last is held, and the next takes over what of it reaches that far.
class HeldWord {
  public:
    DELTASTORE_INLINE void write(std::uint64_t bits, std::size_t byte, unsigned char *out) {
        const std::size_t apart = byte - byte_;
        word_ = (apart < 8 ? word_ >> (8 * apart) : 0) | bits;
        byte_ = byte;
        std::memcpy(out + byte, &word_, sizeof word_);
    }

    // The group from k on, when its bits do not fit a word.
    void write_apart(const std::uint32_t *positions, std::size_t k, int low, unsigned char *out) {
        set_bits(positions, k, k + kGroup, low, out);
        byte_ = ((positions[k + kGroup - 1] >> low) + k + kGroup - 1) / 8;
        word_ = out[byte_];
    }

  private:
    std::uint64_t word_ = 0;
    std::size_t byte_ = 0;
};

DELTASTORE_INLINE void write_groups(const std::uint32_t *positions, std::size_t count, int low,
                                    unsigned char *out) {
    HeldWord held;
    std::size_t k = 0;
    for (; k + kGroup <= count; k += kGroup) {
        const std::size_t first = positions[k] >> low;
        std::uint64_t bits = 1;
        std::size_t apart = 0;
        for (std::size_t i = 1; i < kGroup; ++i) {
            apart = (positions[k + i] >> low) - first + i;
            bits |= std::uint64_t{1} << (apart % 64);
        }
        if (apart <= kFarthest) {
            held.write(bits << ((first + k) % 8), (first + k) / 8, out);
        } else {
            held.write_apart(positions, k, low, out);
        }
    }
    set_bits(positions, k, count, low, out);
}

void write_high(const std::uint32_t *positions, std::size_t count, int low, unsigned char *out) {
    write_groups(positions, count, low, out);
}

#if defined(__GNUC__) && defined(__x86_64__)

// Shifts by a variable that take any register.
__attribute__((target("bmi,bmi2"))) void write_high_bmi2(const std::uint32_t *positions, std::size_t count, int low,
                                                         unsigned char *out) {
    write_groups(positions, count, low, out);
}

DELTASTORE_AVX512 void write_high_avx512(const std::uint32_t *positions, std::size_t count, int low,
                                         unsigned char *out) {
    const __m512i number = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i one = _mm512_set1_epi64(1);
    const __m128i shift = _mm_cvtsi32_si128(low);
    HeldWord held;
    std::size_t k = 0;
    for (; k + kGroup <= count; k += kGroup) {
        const std::size_t first = (positions[k] >> low) + k;
        const std::size_t last = (positions[k + kGroup - 1] >> low) + k + kGroup - 1;
        if (last - first > kFarthest) {
            held.write_apart(positions, k, low, out);
            continue;
        }
        const __m256i group = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(positions + k));
        const __m512i high = _mm512_cvtepu32_epi64(_mm256_srl_epi32(group, shift));
        const __m512i from = _mm512_set1_epi64(static_cast<long long>(first / 8 * 8 - k));
        const __m512i bit = _mm512_sub_epi64(_mm512_add_epi64(high, number), from);
        const auto bits = static_cast<std::uint64_t>(_mm512_reduce_or_epi64(_mm512_sllv_epi64(one, bit)));
        held.write(bits, first / 8, out);
    }
    set_bits(positions, k, count, low, out);
}

#endif

}  // namespace

WriteHigh write_high_for(Instructions instructions) {
#if defined(__GNUC__) && defined(__x86_64__)
    if (instructions == Instructions::avx512) return write_high_avx512;
    if (instructions == Instructions::avx2) return write_high_bmi2;
#endif
    (void)instructions;
    return write_high;
}

}  // namespace deltastore
