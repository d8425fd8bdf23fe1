// Floating point as IEEE 754 has it by default: rounded to nearest even, denormals kept.
#pragma once

#include <cstdint>

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

namespace deltastore {

// Whatever the thread was set to (torch.set_flush_denormal does so), and set back to it at the end.
class PlainArithmetic {
  public:
    PlainArithmetic() : before_(state()) { set(kPlain); }
    ~PlainArithmetic() { set(before_); }
    PlainArithmetic(const PlainArithmetic &) = delete;
    PlainArithmetic &operator=(const PlainArithmetic &) = delete;

  private:
#if defined(__x86_64__) || defined(_M_X64)
    static constexpr std::uint64_t kPlain = 0x1F80;  // all exceptions masked
    static std::uint64_t state() { return _mm_getcsr(); }
    static void set(std::uint64_t value) { _mm_setcsr(static_cast<unsigned>(value)); }
#elif defined(__GNUC__) && defined(__aarch64__)
    static constexpr std::uint64_t kPlain = 0;
    static std::uint64_t state() {
        std::uint64_t value;
        __asm__ __volatile__("mrs %0, fpcr" : "=r"(value));
        return value;
    }
    static void set(std::uint64_t value) { __asm__ __volatile__("msr fpcr, %0" : : "r"(value)); }
#else
    static constexpr std::uint64_t kPlain = 0;
    static std::uint64_t state() { return 0; }
    static void set(std::uint64_t) {}
#endif

    std::uint64_t before_;
};

}  // namespace deltastore
