#include "digest.hpp"

#include <algorithm>
#include <cstring>

#include "digest_avx2.hpp"
#include "weights.hpp"

namespace deltastore {
namespace {

template <typename Element>
Element load(const unsigned char *bits, std::size_t index) {
    Element element;
    std::memcpy(&element, bits + index * sizeof(Element), sizeof(Element));
    return element;
}

// Sum of bits_j * T[j] mod 2^64 over the `count` elements of one block that start at its element `start`.
// With T = low + high * 2^32 the two sums never meet, and only the low half of `high` counts.
template <typename Element>
std::uint64_t block_sum(const unsigned char *bits, std::size_t start, std::size_t count) {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    for (std::size_t k = 0; k < count; ++k) {
        const std::uint64_t element = load<Element>(bits, k);
        low += element * kHalves.low[start + k];
        high += element * kHalves.high[start + k];
    }
    return low + (high << 32);
}

}  // namespace

template <typename Element>
std::uint64_t digest_range(const unsigned char *bits, std::size_t count, std::uint64_t first,
                           std::uint64_t seed, Instructions instructions) {
    const BlockSum whole_block_sum =
        instructions == Instructions::portable ? nullptr : avx2_block_sum(sizeof(Element));
    std::uint64_t block = first / kBlock;
    std::size_t start = first % kBlock;
    std::uint64_t total = 0;
    while (count > 0) {
        const std::size_t here = std::min(kBlock - start, count);
        const std::uint64_t sum = whole_block_sum != nullptr && here == kBlock
                                      ? whole_block_sum(bits)
                                      : block_sum<Element>(bits, start, here);
        total += sum * block_factor(block);
        bits += here * sizeof(Element);
        count -= here;
        start = 0;
        ++block;
    }
    return total * seed;
}

#define DELTASTORE_DIGEST_OF(Element) \
    template std::uint64_t digest_range<Element>(const unsigned char *, std::size_t, std::uint64_t, \
                                                 std::uint64_t, Instructions)

DELTASTORE_DIGEST_OF(std::uint8_t);
DELTASTORE_DIGEST_OF(std::uint16_t);
DELTASTORE_DIGEST_OF(std::uint32_t);
DELTASTORE_DIGEST_OF(std::uint64_t);

}  // namespace deltastore
