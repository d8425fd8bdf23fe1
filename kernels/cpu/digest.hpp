// Digest of a contiguous range of one tensor's elements (SPEC section "Digest").
#pragma once

#include <cstddef>
#include <cstdint>

#include "instructions.hpp"

namespace deltastore {

// Sum of bits_i * w_i mod 2^64 over `count` elements of type Element that start at the flat index `first`.
// `bits` may have any alignment. The same number with all instructions.
template <typename Element>
std::uint64_t digest_range(const unsigned char *bits, std::size_t count, std::uint64_t first,
                           std::uint64_t seed, Instructions instructions);

}  // namespace deltastore
