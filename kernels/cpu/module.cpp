// The Python face of the C++ kernels; arguments are checked by the callers in kernels/cpu/*.py.

#include "module.hpp"

#include "apply_bind.hpp"
#include "blocks_bind.hpp"
#include "ceiling.hpp"
#include "digest.hpp"
#include "digest_chunks.hpp"
#include "encode.hpp"
#include "instructions.hpp"

namespace {

template <typename Element>
using Bits = nb::ndarray<const Element, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename Element>
std::uint64_t digest_range(const Bits<Element> &bits, std::uint64_t first, std::uint64_t seed,
                           int instructions) {
    const auto *bytes = reinterpret_cast<const unsigned char *>(bits.data());
    return deltastore::digest_range<Element>(bytes, bits.size(), first, seed,
                                             deltastore::usable_instructions(instructions));
}

template <typename Element>
void bind_digest_range(nb::module_ &module) {
    module.def("digest_range", &digest_range<Element>, nb::arg("bits").noconvert(), nb::arg("first"),
               nb::arg("seed"), nb::arg("instructions"), nb::call_guard<nb::gil_scoped_release>());
}

void add_array(deltastore::Table &table, const std::vector<std::int64_t> &extent,
               const std::vector<std::int64_t> &chunk, std::uint32_t itemsize, bool floating) {
    deltastore::Array array;
    array.axes = static_cast<int>(extent.size());
    array.chunks = 1;
    for (std::size_t axis = 0; axis < extent.size(); ++axis) {
        array.extent[axis] = extent[axis];
        array.chunk[axis] = chunk[axis];
        array.counts[axis] = (extent[axis] + chunk[axis] - 1) / chunk[axis];
        array.chunks *= static_cast<std::uint64_t>(array.counts[axis]);
    }
    array.itemsize = itemsize;
    array.floating = floating;
    table.arrays.push_back(std::move(array));
}

void set_seeds(deltastore::Table &table, std::size_t array, const Bits<std::uint64_t> &seeds) {
    // Once: a kernel of another thread may be reading them by now.
    auto &known = table.arrays[array].seeds;
    if (known.empty()) known.assign(seeds.data(), seeds.data() + seeds.size());
}

void add_piece(deltastore::Pieces &pieces, std::uint32_t array, std::uint32_t member,
               const std::vector<std::int64_t> &lo, const std::vector<std::int64_t> &size,
               const std::vector<std::int64_t> &stride, std::uintptr_t address) {
    deltastore::Piece piece;
    piece.array = array;
    piece.member = member;
    piece.axes = static_cast<int>(lo.size());
    std::copy(lo.begin(), lo.end(), piece.lo);
    std::copy(size.begin(), size.end(), piece.size);
    std::copy(stride.begin(), stride.end(), piece.stride);
    piece.address = address;
    pieces.add(piece);
}

}  // namespace

NB_MODULE(_native, module) {
    // A reader that a script still holds when Python ends is no leak worth a warning.
    nb::set_leak_warnings(false);
    deltastore::bind_ceiling(module);
    bind_digest_range<std::uint8_t>(module);
    bind_digest_range<std::uint16_t>(module);
    bind_digest_range<std::uint32_t>(module);
    bind_digest_range<std::uint64_t>(module);
    bind_digest_chunks(module);
    bind_block_digests(module);
    bind_inversion(module);
    bind_encode(module);
    nb::class_<deltastore::Table>(module, "Table")
        .def(nb::init<>())
        .def("add", &add_array, nb::arg("extent"), nb::arg("chunk"), nb::arg("itemsize"), nb::arg("floating"))
        .def("set_seeds", &set_seeds, nb::arg("array"), nb::arg("seeds").noconvert());
    nb::class_<deltastore::Pieces>(module, "Pieces")
        .def(nb::init<const deltastore::Table &>(), nb::arg("table"), nb::keep_alive<1, 2>())
        .def("add", &add_piece, nb::arg("array"), nb::arg("member"), nb::arg("lo"), nb::arg("size"),
             nb::arg("stride"), nb::arg("address"))
        .def("finish", &deltastore::Pieces::finish);
    module.def("supported_instructions",
               [] { return static_cast<int>(deltastore::supported_instructions()); });
    deltastore::bind_apply(module);
}
