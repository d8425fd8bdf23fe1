// The plain loops, compiled for eight elements at a time.

#include "inversion.hpp"

#if defined(__GNUC__) && defined(__x86_64__)

#include "inversion_steps.hpp"

#define DELTASTORE_AVX2 __attribute__((target("avx2,bmi,bmi2,popcnt")))

namespace deltastore {
namespace {

DELTASTORE_AVX2 void invert_block(const float *master, const float *mean, const float *square, std::size_t count,
                                  const Rule &rule, std::uint16_t *now, std::uint16_t *old, Uncertain &uncertain) {
    invert_steps(master, mean, square, count, rule, now, old, uncertain);
}

}  // namespace

InvertBlock avx2_invert_block() { return invert_block; }

}  // namespace deltastore

#else

namespace deltastore {

InvertBlock avx2_invert_block() { return invert_block_for(Instructions::portable); }

}  // namespace deltastore

#endif
