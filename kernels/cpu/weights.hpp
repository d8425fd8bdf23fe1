// The position weights of the digest (SPEC section "Digest"), worked out by the compiler.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace deltastore {

inline constexpr std::size_t kBlock = 2048;  // elements that share one block factor

constexpr std::uint64_t mix(std::uint64_t x) {
    std::uint64_t z = x + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

constexpr std::uint64_t position_factor(std::size_t j) { return mix(0x64656C746173746Fu + j) | 1; }

constexpr std::uint64_t block_factor(std::uint64_t block) { return mix(block) | 1; }

// T in two halves of 32 bits: a product of two 32-bit numbers is what every vector unit has.
struct Halves {
    std::array<std::uint32_t, kBlock> low{};
    std::array<std::uint32_t, kBlock> high{};
};

constexpr Halves make_halves() {
    Halves halves;
    for (std::size_t j = 0; j < kBlock; ++j) {
        halves.low[j] = static_cast<std::uint32_t>(position_factor(j));
        halves.high[j] = static_cast<std::uint32_t>(position_factor(j) >> 32);
    }
    return halves;
}

alignas(64) inline constexpr Halves kHalves = make_halves();

}  // namespace deltastore
