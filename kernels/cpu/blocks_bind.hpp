// Tables of blocks as Python gives them: contiguous arrays of 64-bit numbers, whose rows are structures of them.
#pragma once

#include "module.hpp"

namespace deltastore {

using Starts = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table64 = nb::ndarray<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename Element>
using Filled = nb::ndarray<Element, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename Row>
const Row *rows_of(const Table64 &table) {
    return reinterpret_cast<const Row *>(table.data());
}

}  // namespace deltastore

void bind_block_digests(nb::module_ &module);
void bind_inversion(nb::module_ &module);
