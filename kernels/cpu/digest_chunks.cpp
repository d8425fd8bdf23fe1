#include "digest_chunks.hpp"

#include <atomic>

#include "chunk_groups.hpp"
#include "digest.hpp"
#include "position_digest.hpp"
#include "window_runs.hpp"
#include "workers.hpp"

namespace {

using deltastore::Array;
using deltastore::Box;
using deltastore::Instructions;
using deltastore::kBlock;
using deltastore::Places;
using deltastore::Stretch;
using deltastore::Window;
using deltastore::WindowRuns;

constexpr std::uint64_t kGroupBytes = std::uint64_t{1} << 21;  // of weights that one task looks at, roughly
constexpr std::size_t kGroupChunks = 1024;

using In = nb::ndarray<const std::uint32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Out = nb::ndarray<std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Elements that do not stand one after another are copied into a line, a block of the digest at a time.
template <typename Element>
std::uint64_t digest_window(const Window &window, const Places &places, Instructions instructions) {
    Element line[kBlock];
    std::uint64_t total = 0;
    Stretch stretch;
    WindowRuns run(window, sizeof(Element));
    while (!run.done()) {
        if (run.position >= stretch.end || run.position < stretch.first) stretch = places.at(run.position);
        const std::uint64_t flat = stretch.flat + (run.position - stretch.first);
        std::uint64_t count = std::min(run.left, stretch.end - run.position);
        const auto *bits = reinterpret_cast<const unsigned char *>(run.address);
        if (run.stride != static_cast<std::int64_t>(sizeof(Element))) {
            count = std::min<std::uint64_t>(count, kBlock - flat % kBlock);
            deltastore::gather(run.address, run.stride, static_cast<std::size_t>(count), line);
            bits = reinterpret_cast<const unsigned char *>(line);
        }
        total += deltastore::digest_range<Element>(bits, static_cast<std::size_t>(count), flat, stretch.seed,
                                                   instructions);
        run.advance(count);
    }
    return total;
}

template <typename Element>
std::uint64_t digest_windows(const std::vector<Window> &windows, const Places &places, Instructions instructions) {
    std::uint64_t total = 0;
    for (const Window &window : windows) total += digest_window<Element>(window, places, instructions);
    return total;
}

// False where a seed is missing.
bool digest_chunk(const deltastore::Pieces &pieces, deltastore::ChunkNumber number, Instructions instructions,
                  std::vector<Window> &windows, std::uint64_t &digest) {
    const Array &array = pieces.table().arrays[number.array];
    const Box box = deltastore::box_of(array, number.chunk);
    const Places places(array, box);
    if (!places.seeded()) return false;
    pieces.windows(number.array, box, windows);
    switch (array.itemsize) {
        case 1: digest = digest_windows<std::uint8_t>(windows, places, instructions); break;
        case 2: digest = digest_windows<std::uint16_t>(windows, places, instructions); break;
        case 4: digest = digest_windows<std::uint32_t>(windows, places, instructions); break;
        default: digest = digest_windows<std::uint64_t>(windows, places, instructions); break;
    }
    return true;
}

// Gives the number of chunks where every one is digested, else the lowest that could not be.
std::size_t digest_chunks(const deltastore::Pieces &pieces, const In &chunks, Out &digests, std::size_t threads,
                          int wanted) {
    const nb::gil_scoped_release released;
    const deltastore::Table &table = pieces.table();
    const Instructions instructions = deltastore::usable_instructions(wanted);
    const std::size_t count = std::min(chunks.shape(0), digests.shape(0));
    const auto *numbers = reinterpret_cast<const unsigned char *>(chunks.data());
    const std::vector<std::size_t> starts =
        deltastore::chunk_groups(table, numbers, count, kGroupBytes, kGroupChunks);
    std::atomic<std::size_t> refused{count};
    deltastore::run_tasks(threads, starts.size() - 1, [&](std::size_t, std::size_t group) {
        std::vector<Window> windows;
        for (std::size_t index = starts[group]; index < starts[group + 1]; ++index) {
            const deltastore::ChunkNumber number = deltastore::chunk_number(numbers, index);
            std::uint64_t digest = 0;
            if (!table.has(number.array, number.chunk) ||
                !digest_chunk(pieces, number, instructions, windows, digest)) {
                std::size_t lowest = refused.load();
                while (index < lowest && !refused.compare_exchange_weak(lowest, index)) {
                }
            }
            digests.data()[index] = digest;
        }
    });
    return refused.load();
}

}  // namespace

void bind_digest_chunks(nb::module_ &module) {
    module.def("digest_chunks", &digest_chunks, nb::arg("pieces"), nb::arg("chunks").noconvert(),
               nb::arg("digests").noconvert(), nb::arg("threads"), nb::arg("instructions"));
}
