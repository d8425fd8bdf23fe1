#include "ceiling.hpp"

#include <cstring>

#include "instructions.hpp"
#include "module.hpp"
#include "workers.hpp"

#if defined(__GNUC__) && defined(__x86_64__)
#define DELTASTORE_AVX2 __attribute__((target("avx2")))
#else
#define DELTASTORE_AVX2
#endif

namespace deltastore {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 18;  // bytes of each input that a worker reads at a time
constexpr std::size_t kLine = 64;

inline std::uint64_t word(const unsigned char *bytes) {
    std::uint64_t value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}

// Whole lines only; the sum is there so that the reads are. Software prefetch made it slower where it was tried.
DELTASTORE_AVX2 std::uint64_t sum_of(const unsigned char *bytes, std::size_t count) {
    std::uint64_t lanes[8] = {};
    for (std::size_t at = 0; at + kLine <= count; at += kLine) {
        for (std::size_t lane = 0; lane < 8; ++lane) lanes[lane] += word(bytes + at + lane * 8);
    }
    std::uint64_t total = 0;
    for (const std::uint64_t lane : lanes) total += lane;
    return total;
}

using Octets = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::uint64_t read_both(const Octets &first, const Octets &second, std::size_t threads) {
    const std::size_t bytes = std::min(first.size(), second.size());
    std::vector<std::uint64_t> sums(std::max<std::size_t>(threads, 1) * 8);  // a line for each worker
    run_tasks(threads, (bytes + kPiece - 1) / kPiece, [&](std::size_t worker, std::size_t task) {
        const std::size_t start = task * kPiece;
        const std::size_t count = std::min(kPiece, bytes - start);
        sums[worker * 8] += sum_of(first.data() + start, count) + sum_of(second.data() + start, count);
    });
    std::uint64_t total = 0;
    for (const std::uint64_t sum : sums) total += sum;
    return total;
}

}  // namespace

void bind_ceiling(nb::module_ &module) {
    module.def("read_both", &read_both, nb::arg("first").noconvert(), nb::arg("second").noconvert(),
               nb::arg("threads"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace deltastore
