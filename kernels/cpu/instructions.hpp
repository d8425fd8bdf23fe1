// Which instructions a kernel may use. Callers name the best they want; what the processor lacks is left out.
#pragma once

#include <algorithm>

namespace deltastore {

enum class Instructions : int { portable = 0, avx2 = 1, avx512 = 2 };

// AVX2 comes with BMI1, BMI2, LZCNT and POPCNT; AVX-512 with F, BW, DQ, VL, VBMI and VBMI2 (Ice Lake, Zen 4).
inline Instructions supported_instructions() {
#if defined(__GNUC__) && defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi") || !__builtin_cpu_supports("bmi2") ||
        !__builtin_cpu_supports("popcnt")) {
        return Instructions::portable;
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2")) {
        return Instructions::avx512;
    }
    return Instructions::avx2;
#else
    return Instructions::portable;
#endif
}

inline Instructions usable_instructions(int wanted) {
    return static_cast<Instructions>(std::clamp(wanted, 0, static_cast<int>(supported_instructions())));
}

}  // namespace deltastore
