// The second pass over changed elements, written so that compilers turn it into vectors. It is compiled once for
// each set of instructions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "changed.hpp"
#include "ordered.hpp"

#if defined(__GNUC__)
#define DELTASTORE_INLINE inline __attribute__((always_inline))
#else
#define DELTASTORE_INLINE inline
#endif

namespace deltastore {

// A step d fits the width w when |d| < 2^(w-1); so the class is the number of narrower widths that it exceeds.
template <typename Element>
DELTASTORE_INLINE void classify_steps(const Element *__restrict before, const Element *__restrict after,
                                      std::size_t count, bool floating, Element *__restrict residues,
                                      std::uint8_t *__restrict classes, std::uint32_t *tally) {
    constexpr int top = static_cast<int>(sizeof(Element)) * 8 - 1;
    constexpr int widest = widest_class<Element>();
    constexpr std::size_t piece = 128;  // so few that counters of one byte do not overflow
    const Element fold = floating ? static_cast<Element>(static_cast<Element>(~Element{0}) >> 1) : Element{0};
    for (std::size_t k = 0; k < count; ++k) {
        const Element was = before[k];
        const Element is = after[k];
        const Element low = static_cast<Element>(was ^ (static_cast<Element>(-(was >> top)) & fold));
        const Element high = static_cast<Element>(is ^ (static_cast<Element>(-(is >> top)) & fold));
        const Element step = static_cast<Element>(high - low);
        const Element sign = static_cast<Element>(-(step >> top));
        const Element size = static_cast<Element>((step ^ sign) - sign);
        Element found = 0;
        for (int c = 0; c < widest; ++c) {
            found = static_cast<Element>(found + (size >= static_cast<Element>(Element{1} << ((2 << c) - 1)) ? 1 : 0));
        }
        residues[k] = high;
        classes[k] = static_cast<std::uint8_t>(found);
    }
    for (std::size_t start = 0; start < count; start += piece) {
        const std::size_t end = count - start < piece ? count : start + piece;
        for (int c = 0; c <= widest; ++c) {
            std::uint8_t here = 0;
            for (std::size_t k = start; k < end; ++k) {
                here = static_cast<std::uint8_t>(here + (classes[k] == c ? 1 : 0));
            }
            tally[c] += here;
        }
    }
}

}  // namespace deltastore
