#include "inversion.hpp"

#include <cmath>

#include "inversion_steps.hpp"

namespace deltastore {
namespace {

float first_nan(float a, float b, float result) { return std::isnan(a) ? a : std::isnan(b) ? b : result; }

void invert_block(const float *master, const float *mean, const float *square, std::size_t count, const Rule &rule,
                  std::uint16_t *now, std::uint16_t *old, Uncertain &uncertain) {
    invert_steps(master, mean, square, count, rule, now, old, uncertain);
}

}  // namespace

Candidates invert_one(float master, float mean, float square, const Rule &rule) {
    const float root = first_nan(square, square, std::sqrt(square));
    const float scaled = first_nan(root, root, root * rule.root_scale) + rule.eps;
    const float step = first_nan(mean, mean, rule.step_size * mean);
    const float update = first_nan(step, scaled, step / scaled);
    const float sum = first_nan(master, update, master + update);
    const float before = first_nan(sum, sum, sum * rule.growth);
    const float value = std::fabs(master) * rule.of_value;
    const float change = std::fabs(update) * rule.of_update;
    const float reach = first_nan(value, change, value + change) + rule.floor;
    const float low = first_nan(before, reach, before - reach);
    const float high = first_nan(before, reach, before + reach);
    const Candidates found{bf16_of(bits_of(before)), bf16_of(bits_of(low)), bf16_of(bits_of(high)), false};
    return {found.old, found.low, found.high, found.low != found.high || std::isnan(low) || std::isnan(high)};
}

InvertBlock invert_block_for(Instructions instructions) {
    if (instructions == Instructions::avx512) return avx512_invert_block();
    if (instructions == Instructions::avx2) return avx2_invert_block();
    return invert_block;
}

}  // namespace deltastore
