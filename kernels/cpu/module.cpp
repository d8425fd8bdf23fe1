// The Python face of the C++ kernels; arguments are checked by the callers in kernels/cpu/*.py.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "digest.hpp"

namespace nb = nanobind;

namespace {

template <typename Element>
using Bits = nb::ndarray<const Element, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename Element>
std::uint64_t digest_range(const Bits<Element> &bits, std::uint64_t first, std::uint64_t seed,
                           bool portable) {
    const auto *bytes = reinterpret_cast<const unsigned char *>(bits.data());
    return deltastore::digest_range<Element>(bytes, bits.size(), first, seed, portable);
}

template <typename Element>
void bind_digest(nb::module_ &module) {
    module.def("digest_range", &digest_range<Element>, nb::arg("bits").noconvert(), nb::arg("first"),
               nb::arg("seed"), nb::arg("portable") = false, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace

NB_MODULE(_native, module) {
    bind_digest<std::uint8_t>(module);
    bind_digest<std::uint16_t>(module);
    bind_digest<std::uint32_t>(module);
    bind_digest<std::uint64_t>(module);
}
