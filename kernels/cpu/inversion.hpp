// Inversion of an AdamW step over one block of elements (kernels/inversion.py has the formulas).
#pragma once

#include <cstddef>
#include <cstdint>

#include "instructions.hpp"

namespace deltastore {

inline constexpr std::size_t kMostUncertain = 8;  // a block with more is not settled by trying combinations

// Coefficients of one step of one parameter group, as the dtype RULE lays them out.
struct Rule {
    float step_size;
    float root_scale;
    float eps;
    float growth;
    float of_value;
    float of_update;
    float floor;
};

// The uncertain elements of a block in ascending order; only the first kMostUncertain are listed.
struct Uncertain {
    std::size_t count = 0;
    std::uint16_t at[kMostUncertain];
    std::uint16_t low[kMostUncertain];
    std::uint16_t high[kMostUncertain];

    void add(std::size_t place, std::uint16_t lower, std::uint16_t higher) {
        if (count < kMostUncertain) {
            at[count] = static_cast<std::uint16_t>(place);
            low[count] = lower;
            high[count] = higher;
        }
        ++count;
    }
};

// What one element was: what the inversion says, and between which bits it lies.
struct Candidates {
    std::uint16_t old;
    std::uint16_t low;
    std::uint16_t high;
    bool uncertain;
};

// Of two NaNs that meet, the first operand's sign counts: hardware says so, and compilers may swap operands.
Candidates invert_one(float master, float mean, float square, const Rule &rule);

// Writes the bits now and before of `count` elements, at most kBlock, and lists the uncertain ones. The memory has any
// alignment. Needs the arithmetic of PlainArithmetic.
using InvertBlock = void (*)(const float *master, const float *mean, const float *square, std::size_t count,
                             const Rule &rule, std::uint16_t *now, std::uint16_t *old, Uncertain &uncertain);

InvertBlock invert_block_for(Instructions instructions);

InvertBlock avx2_invert_block();
InvertBlock avx512_invert_block();

}  // namespace deltastore
