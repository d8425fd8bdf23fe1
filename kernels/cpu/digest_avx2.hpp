// The digest's inner sum for processors with AVX2, chosen when the program runs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deltastore {

// Sum of bits_j * T[j] mod 2^64 over one whole block of 2048 elements, at any alignment.
using BlockSum = std::uint64_t (*)(const unsigned char *bits);

// The kernel for elements of `bytes` bytes, or null where this processor or this width has none.
BlockSum avx2_block_sum(std::size_t bytes);

}  // namespace deltastore
