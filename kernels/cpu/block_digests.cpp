#include "block_digests.hpp"

#include <vector>

#include "blocks_bind.hpp"
#include "workers.hpp"

namespace {

using deltastore::Instructions;
using deltastore::kBlock;
using deltastore::RunCursor;

template <typename Element>
using Bits = nb::ndarray<const Element, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

constexpr std::size_t kGroup = 32;  // blocks of one task

template <typename Element>
void digest_blocks(const deltastore::Starts &starts, const deltastore::Table64 &runs, const Bits<Element> &bits,
                   const deltastore::Filled<std::uint64_t> &digests, std::size_t threads, int wanted) {
    const nb::gil_scoped_release released;
    const Instructions instructions = deltastore::usable_instructions(wanted);
    const std::size_t blocks = digests.shape(0);
    deltastore::run_tasks(threads, (blocks + kGroup - 1) / kGroup, [&](std::size_t, std::size_t group) {
        const std::int64_t *place = starts.data();
        RunCursor cursor(deltastore::rows_of<deltastore::Run>(runs), runs.shape(0), place[group * kGroup]);
        for (std::size_t block = group * kGroup; block < std::min(blocks, (group + 1) * kGroup); ++block) {
            digests.data()[block] =
                deltastore::digest_block<Element>(bits.data(), place[block], place[block + 1], cursor, instructions);
        }
    });
}

template <typename Element>
void bind(nb::module_ &module) {
    module.def("digest_blocks", &digest_blocks<Element>, nb::arg("starts").noconvert(), nb::arg("runs").noconvert(),
               nb::arg("bits").noconvert(), nb::arg("digests").noconvert(), nb::arg("threads"),
               nb::arg("instructions"));
}

}  // namespace

namespace deltastore {
namespace {

template <typename Element>
std::uint64_t digest_bits(const Element *bits, std::size_t count, std::uint64_t flat, std::uint64_t seed,
                          Instructions instructions) {
    return digest_range<Element>(reinterpret_cast<const unsigned char *>(bits), count, flat, seed, instructions);
}

}  // namespace

template <typename Element>
std::uint64_t digest_block(const Element *bits, std::int64_t start, std::int64_t end, RunCursor &runs,
                           Instructions instructions) {
    const SegmentSum wide = instructions == Instructions::avx512 ? avx512_segment_sum() : nullptr;
    std::uint64_t total = 0;
    runs.each(start, end, [&](std::int64_t at, std::size_t count, std::uint64_t flat, std::uint64_t seed) {
        if constexpr (sizeof(Element) == 2) {
            if (wide != nullptr && count >= kShortSegment) {
                total += wide(bits + at, flat % kBlock, count) * (block_factor(flat / kBlock) * seed);
                return;
            }
        }
        total += digest_bits(bits + at, count, flat, seed, instructions);
    });
    return total;
}

TwoDigests digest_two(const std::uint16_t *first, const std::uint16_t *second, std::int64_t start, std::int64_t end,
                      RunCursor &runs, Instructions instructions) {
    const SegmentSums wide = instructions == Instructions::avx512 ? avx512_segment_sums() : nullptr;
    TwoDigests total{0, 0};
    runs.each(start, end, [&](std::int64_t at, std::size_t count, std::uint64_t flat, std::uint64_t seed) {
        if (wide == nullptr || count < kShortSegment) {
            total.first += digest_bits(first + at, count, flat, seed, instructions);
            total.second += digest_bits(second + at, count, flat, seed, instructions);
            return;
        }
        std::uint64_t sums[2];
        wide(first + at, second + at, flat % kBlock, count, sums);
        const std::uint64_t factor = block_factor(flat / kBlock) * seed;
        total.first += sums[0] * factor;
        total.second += sums[1] * factor;
    });
    return total;
}

}  // namespace deltastore

void bind_block_digests(nb::module_ &module) {
    bind<std::uint8_t>(module);
    bind<std::uint16_t>(module);
    bind<std::uint32_t>(module);
    bind<std::uint64_t>(module);
}
