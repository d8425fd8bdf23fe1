#include "encode.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

#include "chunk_groups.hpp"
#include "encode_chunk.hpp"
#include "workers.hpp"

namespace {

using deltastore::ChunkJob;
using deltastore::ChunkNumber;
using deltastore::EncodeScratch;
using deltastore::PatchesOut;
using deltastore::Refusal;

constexpr std::uint64_t kGroupBytes = std::uint64_t{1} << 21;  // of weights that one task looks at, roughly
constexpr std::size_t kGroupChunks = 1024;

template <typename T, int Axes>
using In = nb::ndarray<const T, nb::ndim<Axes>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Result = nb::ndarray<nb::numpy, T, nb::ndim<1>>;
using Memory = std::unique_ptr<void, deltastore::Free>;

template <typename Array>
const unsigned char *bytes_of(const Array &array) {
    return reinterpret_cast<const unsigned char *>(array.data());
}

// The first chunk in their order that is refused: the same one whatever the threads do.
class FirstRefusal {
  public:
    explicit FirstRefusal(std::size_t none) : chunk_(none) {}

    bool before(std::size_t chunk) const { return chunk_.load(std::memory_order_relaxed) < chunk; }

    void note(std::size_t chunk, Refusal refusal) {
        const std::lock_guard<std::mutex> lock(noting_);
        if (chunk >= chunk_.load()) return;
        chunk_.store(chunk);
        refusal_ = refusal;
    }

    std::size_t chunk() const { return chunk_.load(); }
    Refusal refusal() const { return refusal_; }

  private:
    std::atomic<std::size_t> chunk_;
    Refusal refusal_ = Refusal::none;
    std::mutex noting_;
};

// What one call gives: rows and patches of all groups in their order, or the chunk that is refused.
struct Encoded {
    std::size_t refused = 0;
    Refusal refusal = Refusal::none;
    Memory rows;
    std::size_t row_count = 0;
    Memory body;
    std::size_t body_bytes = 0;
    Memory changed;
};

Memory allocate(std::size_t bytes) {
    Memory memory(std::malloc(bytes > 0 ? bytes : 1));
    if (!memory) throw std::bad_alloc();
    return memory;
}

// Puts the groups' results one after another; each is given back as soon as it is copied.
void join_groups(std::vector<PatchesOut> &groups, Encoded &encoded) {
    for (const PatchesOut &group : groups) {
        encoded.row_count += group.rows().size();
        encoded.body_bytes += group.size();
    }
    encoded.rows = allocate(encoded.row_count * deltastore::kRowBytes);
    encoded.body = allocate(encoded.body_bytes);
    encoded.changed = allocate(encoded.row_count * sizeof(std::uint32_t));
    auto *row = static_cast<unsigned char *>(encoded.rows.get());
    auto *patch = static_cast<unsigned char *>(encoded.body.get());
    auto *changed = static_cast<std::uint32_t *>(encoded.changed.get());
    for (PatchesOut &group : groups) {
        for (const deltastore::Row &entry : group.rows()) {
            deltastore::write_row(row, entry);
            row += deltastore::kRowBytes;
        }
        changed = std::copy(group.changed().begin(), group.changed().end(), changed);
        if (group.size() > 0) std::memcpy(patch, group.body(), group.size());
        patch += group.size();
        group.release();
    }
}

// encode(job, index, scratch, out) for every chunk, by any number of threads.
template <typename Encode>
Encoded encode_all(const deltastore::Table &table, const unsigned char *chunks, std::size_t count,
                   std::size_t threads, int instructions, Encode &&encode) {
    const auto usable = deltastore::usable_instructions(instructions);
    const std::vector<std::size_t> starts =
        deltastore::chunk_groups(table, chunks, count, kGroupBytes, kGroupChunks);
    const std::size_t groups = starts.size() - 1;
    std::vector<PatchesOut> results(groups);
    std::vector<EncodeScratch> scratches(std::max<std::size_t>(std::min(threads, groups), 1));
    FirstRefusal first(count);
    deltastore::run_tasks(threads, groups, [&](std::size_t worker, std::size_t group) {
        for (std::size_t index = starts[group]; index < starts[group + 1]; ++index) {
            if (first.before(index)) return;
            const ChunkNumber number = deltastore::chunk_number(chunks, index);
            Refusal refusal = Refusal::no_such_chunk;
            if (table.has(number.array, number.chunk)) {
                const ChunkJob job{&table.arrays[number.array], number.array, number.chunk, usable};
                refusal = encode(job, index, scratches[worker], results[group]);
            }
            if (refusal != Refusal::none) first.note(index, refusal);
        }
    });
    Encoded encoded;
    encoded.refused = first.chunk();
    encoded.refusal = first.refusal();
    if (encoded.refusal == Refusal::none) join_groups(results, encoded);
    return encoded;
}

template <typename T>
Result<T> owned(Memory memory, std::size_t count) {
    void *data = memory.get();
    nb::capsule owner(data, [](void *held) noexcept { std::free(held); });
    (void)memory.release();
    return Result<T>(data, {count}, owner);
}

nb::tuple answer(Encoded encoded) {
    const int refusal = static_cast<int>(encoded.refusal);
    if (encoded.refusal != Refusal::none) {
        return nb::make_tuple(refusal, encoded.refused, nb::none(), nb::none(), nb::none());
    }
    return nb::make_tuple(refusal, encoded.refused,
                          owned<std::uint8_t>(std::move(encoded.rows), encoded.row_count * deltastore::kRowBytes),
                          owned<std::uint8_t>(std::move(encoded.body), encoded.body_bytes),
                          owned<std::uint32_t>(std::move(encoded.changed), encoded.row_count));
}

nb::tuple encode_changed(const deltastore::Pieces &after, const deltastore::Pieces &before,
                         const In<std::uint32_t, 2> &chunks, std::size_t threads, int instructions) {
    Encoded encoded;
    {
        const nb::gil_scoped_release released;
        encoded = encode_all(after.table(), bytes_of(chunks), chunks.shape(0), threads, instructions,
                             [&](const ChunkJob &job, std::size_t, EncodeScratch &scratch, PatchesOut &out) {
                                 return deltastore::encode_changed_chunk(job, before, after, scratch, out);
                             });
    }
    return answer(std::move(encoded));
}

// `starts` and `offsets` are within `positions` and the bits, and never descend: the caller has checked.
nb::tuple encode_listed(const deltastore::Table &table, const In<std::uint32_t, 2> &chunks,
                        const In<std::int64_t, 1> &starts, const In<std::uint32_t, 1> &positions,
                        const In<std::int64_t, 1> &offsets, const In<std::uint8_t, 1> &after,
                        const In<std::uint8_t, 1> &before, const deltastore::Pieces *whole, std::size_t threads,
                        int instructions) {
    Encoded encoded;
    {
        const nb::gil_scoped_release released;
        encoded = encode_all(table, bytes_of(chunks), chunks.shape(0), threads, instructions,
                             [&](const ChunkJob &job, std::size_t index, EncodeScratch &scratch, PatchesOut &out) {
                                 const auto start = static_cast<std::size_t>(starts.data()[index]);
                                 const auto end = static_cast<std::size_t>(starts.data()[index + 1]);
                                 const auto offset = static_cast<std::size_t>(offsets.data()[index]);
                                 const deltastore::ListedElements listed{bytes_of(positions) + start * 4,
                                                                         before.data() + offset,
                                                                         after.data() + offset, end - start};
                                 return deltastore::encode_listed_chunk(job, listed, whole, scratch, out);
                             });
    }
    return answer(std::move(encoded));
}

}  // namespace

void bind_encode(nb::module_ &module) {
    module.def("encode_changed", &encode_changed, nb::arg("new"), nb::arg("old"), nb::arg("chunks").noconvert(),
               nb::arg("threads"), nb::arg("instructions"));
    module.def("encode_listed", &encode_listed, nb::arg("table"), nb::arg("chunks").noconvert(),
               nb::arg("starts").noconvert(), nb::arg("positions").noconvert(), nb::arg("offsets").noconvert(),
               nb::arg("new").noconvert(), nb::arg("old").noconvert(), nb::arg("whole").none(), nb::arg("threads"),
               nb::arg("instructions"));
}
