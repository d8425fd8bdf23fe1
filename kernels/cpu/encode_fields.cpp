#include "encode_fields.hpp"

#include <algorithm>
#include <cstring>

#include "encode_widths.hpp"

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

namespace deltastore {
namespace {

static_assert(sizeof(std::size_t) == 8, "sections are written in 64-bit words");

// Eight bytes, the low `width` bits of each -> 8 * width bits without gaps. width is 1 to 8.
inline std::uint64_t join_fields(std::uint64_t fields, int width) {
    const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
    fields &= mask * 0x0101010101010101u;
    if (width == 8) return fields;
    const int gap = 8 - width;
    fields = (fields & 0x00FF00FF00FF00FFu) | ((fields & 0xFF00FF00FF00FF00u) >> gap);
    fields = (fields & 0x0000FFFF0000FFFFu) | ((fields & 0xFFFF0000FFFF0000u) >> (2 * gap));
    return (fields & 0x00000000FFFFFFFFu) | ((fields & 0xFFFFFFFF00000000u) >> (4 * gap));
}

inline std::uint64_t little(std::uint64_t word) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "bits are exchanged with memory as they stand: a little-endian machine is needed"
#endif
    return word;
}

inline void store(unsigned char *out, std::uint64_t word) {
    word = little(word);
    std::memcpy(out, &word, sizeof word);
}

// Fields of at most 8 bits: eight of them fill `width` whole bytes, so no bits are carried from group to group.
template <typename Value>
void pack_narrow(const Value *values, std::size_t count, int width, unsigned char *out) {
    constexpr std::size_t tile = 64;
    unsigned char bytes[tile];
    for (std::size_t start = 0; start < count; start += tile) {
        const std::size_t here = std::min(tile, count - start);
        if (here == tile) {
            for (std::size_t k = 0; k < tile; ++k) bytes[k] = static_cast<unsigned char>(values[start + k]);
        } else {
            std::memset(bytes, 0, sizeof bytes);
            for (std::size_t k = 0; k < here; ++k) bytes[k] = static_cast<unsigned char>(values[start + k]);
        }
        for (std::size_t k = 0; k < here; k += 8) {
            std::uint64_t fields;
            std::memcpy(&fields, bytes + k, sizeof fields);
            store(out, join_fields(fields, width));
            out += width;
        }
    }
}

// Fields of 9 to 31 bits.
template <typename Value>
void pack_wide(const Value *values, std::size_t count, int width, unsigned char *out) {
    const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
    std::uint64_t held = 0;
    int bits = 0;  // held, below 32
    for (std::size_t k = 0; k < count; ++k) {
        held |= (static_cast<std::uint64_t>(values[k]) & mask) << bits;
        bits += width;
        store(out, held);
        const int whole = bits >= 32 ? 1 : 0;
        out += 4 * whole;
        held >>= 32 * whole;
        bits -= 32 * whole;
    }
}

#if defined(__GNUC__) && defined(__x86_64__)

// 64 values to their lowest bytes.
DELTASTORE_AVX512 inline void low_bytes(const std::uint8_t *values, unsigned char *bytes) {
    _mm512_storeu_si512(bytes, _mm512_loadu_si512(values));
}
DELTASTORE_AVX512 inline void low_bytes(const std::uint16_t *values, unsigned char *bytes) {
    for (std::size_t k = 0; k < 64; k += 32) {
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(bytes + k),
                            _mm512_cvtepi16_epi8(_mm512_loadu_si512(values + k)));
    }
}
DELTASTORE_AVX512 inline void low_bytes(const std::uint32_t *values, unsigned char *bytes) {
    for (std::size_t k = 0; k < 64; k += 16) {
        _mm_storeu_si128(reinterpret_cast<__m128i *>(bytes + k), _mm512_cvtepi32_epi8(_mm512_loadu_si512(values + k)));
    }
}
DELTASTORE_AVX512 inline void low_bytes(const std::uint64_t *values, unsigned char *bytes) {
    for (std::size_t k = 0; k < 64; k += 8) {
        _mm_storel_epi64(reinterpret_cast<__m128i *>(bytes + k), _mm512_cvtepi64_epi8(_mm512_loadu_si512(values + k)));
    }
}

// Every processor with AVX-512 extracts bits quickly, which is not so of all that have BMI2.
template <typename Value>
DELTASTORE_AVX512 void pack_narrow_avx512(const Value *values, std::size_t count, int width, unsigned char *out) {
    constexpr std::size_t tile = 64;
    const std::uint64_t mask = ((std::uint64_t{1} << width) - 1) * 0x0101010101010101u;
    const auto step = static_cast<std::size_t>(width);
    std::size_t start = 0;
    for (; start + tile <= count; start += tile) {
        unsigned char bytes[tile];
        low_bytes(values + start, bytes);
        for (std::size_t k = 0; k < tile; k += 8) {
            std::uint64_t fields;
            std::memcpy(&fields, bytes + k, sizeof fields);
            store(out, _pext_u64(fields, mask));
            out += step;
        }
    }
    pack_narrow(values + start, count - start, width, out);
}

#endif

template <typename Value>
using PackNarrow = void (*)(const Value *values, std::size_t count, int width, unsigned char *out);

template <typename Value, PackNarrow<Value> Narrow>
unsigned char *pack_fields(const Value *values, std::size_t count, int width, unsigned char *out) {
    const std::size_t bytes = section_bytes(std::uint64_t{count} * static_cast<std::uint64_t>(width));
    if (width == 0) return out;
    if (width == static_cast<int>(sizeof(Value)) * 8) {
        std::memset(out + bytes - 4, 0, 4);
        std::memcpy(out, values, count * sizeof(Value));
    } else if (width <= 8) {
        std::memset(out + count * static_cast<std::size_t>(width) / 8, 0, 8);
        Narrow(values, count, width, out);
    } else if (width < 32) {
        pack_wide(values, count, width, out);
    } else {
        for (std::size_t k = 0; k < count; ++k) {
            const auto value = static_cast<std::uint32_t>(values[k]);
            std::memcpy(out + 4 * k, &value, sizeof value);
        }
    }
    return out + bytes;
}

}  // namespace

template <typename Value>
PackFields<Value> pack_fields_for(Instructions instructions) {
#if defined(__GNUC__) && defined(__x86_64__)
    if (instructions == Instructions::avx512) return pack_fields<Value, pack_narrow_avx512<Value>>;
#endif
    (void)instructions;
    return pack_fields<Value, pack_narrow<Value>>;
}

template PackFields<std::uint8_t> pack_fields_for<std::uint8_t>(Instructions);
template PackFields<std::uint16_t> pack_fields_for<std::uint16_t>(Instructions);
template PackFields<std::uint32_t> pack_fields_for<std::uint32_t>(Instructions);
template PackFields<std::uint64_t> pack_fields_for<std::uint64_t>(Instructions);

}  // namespace deltastore
