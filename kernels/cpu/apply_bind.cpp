// Arguments are checked by the callers in kernels/cpu/*.py. Every function lets the interpreter go on meanwhile.

#include "apply_bind.hpp"

#include <nanobind/stl/pair.h>

#include <algorithm>
#include <utility>

#include "apply.hpp"
#include "instructions.hpp"
#include "merge.hpp"
#include "resolve.hpp"
#include "scatter.hpp"

namespace deltastore {
namespace {

template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Octets = In<std::uint8_t>;
// The first bad row and why; a reason of 0 says that there is none.
using Verdict = std::pair<std::uint64_t, int>;

constexpr std::size_t kMostThreads = 256;

std::size_t threads_of(std::int64_t threads) {
    return static_cast<std::size_t>(std::clamp<std::int64_t>(threads, 1, kMostThreads));
}

// Staged bits with what keeps their memory alive.
struct StagedArrays {
    StagedArrays(Octets chunk_octets, In<std::int64_t> start_list, In<std::uint32_t> position_list,
                 In<std::int64_t> offset_list, Octets bit_octets)
        : chunks(std::move(chunk_octets)), starts(std::move(start_list)), positions(std::move(position_list)),
          offsets(std::move(offset_list)), bits(std::move(bit_octets)) {
        view.chunks = chunks.data();
        view.count = chunks.size() / 8;
        view.starts = starts.data();
        view.positions = positions.data();
        view.position_count = positions.size();
        view.offsets = offsets.data();
        view.bits = bits.data();
        view.bytes = bits.size();
    }

    Octets chunks;
    In<std::int64_t> starts;
    In<std::uint32_t> positions;
    In<std::int64_t> offsets;
    Octets bits;
    Staged view;
};

struct Job {
    Job(const Octets &rows, const Octets &body, std::int64_t wanted_threads, int instructions)
        : pack(rows.data(), rows.size() / kRowBytes, body.data(), body.size()),
          decode(run_decoder(usable_instructions(instructions))), threads(threads_of(wanted_threads)) {}

    Verdict verdict() const { return {bad.found() ? bad.row() : 0, static_cast<int>(bad.reason())}; }

    Pack pack;
    DecodeRun decode;
    std::size_t threads;
    FirstBad bad;
};

Verdict check_rows(const Table &table, const Octets &rows, const Octets &body, std::int64_t threads,
                   int instructions) {
    const nb::gil_scoped_release free;
    Job job(rows, body, threads, instructions);
    check_pack(table, job.pack, job.decode, job.threads, job.bad);
    return job.verdict();
}

Verdict apply_rows(const Pieces &pieces, const Octets &rows, const Octets &body, std::int64_t threads,
                   int instructions) {
    const nb::gil_scoped_release free;
    Job job(rows, body, threads, instructions);
    apply_pack(pieces, job.pack, job.decode, job.threads, job.bad);
    return job.verdict();
}

Verdict count_rows(const Pieces &pieces, const Octets &rows, const Octets &body, const Out<std::int64_t> &counts,
                   std::int64_t threads, int instructions) {
    const nb::gil_scoped_release free;
    Job job(rows, body, threads, instructions);
    count_held(pieces, job.pack, job.decode, job.threads, counts.data(), job.bad);
    return job.verdict();
}

Verdict resolve_rows(const Pieces &pieces, const Octets &rows, const Octets &body, const StagedArrays *under,
                     const In<std::int64_t> &under_rows, const In<std::int64_t> &starts,
                     const In<std::int64_t> &offsets, const Out<std::uint32_t> &positions, const Out<std::uint8_t> &bits,
                     const Out<std::uint64_t> &differences, std::int64_t threads, int instructions) {
    const nb::gil_scoped_release free;
    Job job(rows, body, threads, instructions);
    Under known;
    if (under != nullptr) known = {under->view, under_rows.data()};
    const ResolvedBits out{starts.data(), offsets.data(), positions.data(), bits.data(), differences.data()};
    resolve(pieces, job.pack, known, job.decode, job.threads, out, job.bad);
    return job.verdict();
}

std::uint64_t first_bad(const StagedArrays &staged, const Table &table, std::int64_t threads) {
    const nb::gil_scoped_release free;
    return first_bad_entry(table, staged.view, threads_of(threads));
}

void scatter_staged(const Pieces &pieces, const StagedArrays &staged, std::int64_t threads) {
    const nb::gil_scoped_release free;
    scatter(pieces, staged.view, threads_of(threads));
}

std::uint64_t count_mismatches(const Pieces &pieces, const StagedArrays &staged, std::int64_t threads) {
    const nb::gil_scoped_release free;
    return mismatches(pieces, staged.view, threads_of(threads));
}

MergePlan plan_of(const In<std::int64_t> &first, const In<std::int64_t> &second) {
    return {first.data(), second.data(), first.size()};
}

std::uint64_t count_merged(const StagedArrays &first, const StagedArrays &second, const In<std::int64_t> &of_first,
                           const In<std::int64_t> &of_second, const Out<std::int64_t> &counts, std::int64_t threads) {
    const nb::gil_scoped_release free;
    return merged_counts(first.view, second.view, plan_of(of_first, of_second), counts.data(), threads_of(threads));
}

void merge_staged(const Table &table, const StagedArrays &first, const StagedArrays &second,
                  const In<std::int64_t> &of_first, const In<std::int64_t> &of_second, const In<std::int64_t> &starts,
                  const In<std::int64_t> &offsets, const Out<std::uint32_t> &positions, const Out<std::uint8_t> &bits,
                  std::int64_t threads) {
    const nb::gil_scoped_release free;
    merge(table, first.view, second.view, plan_of(of_first, of_second), starts.data(), offsets.data(), positions.data(),
          bits.data(), threads_of(threads));
}

}  // namespace

void bind_apply(nb::module_ &module) {
    nb::class_<StagedArrays>(module, "Staged")
        .def(nb::init<Octets, In<std::int64_t>, In<std::uint32_t>, In<std::int64_t>, Octets>(),
             nb::arg("chunks").noconvert(), nb::arg("starts").noconvert(), nb::arg("positions").noconvert(),
             nb::arg("offsets").noconvert(), nb::arg("bits").noconvert())
        .def("first_bad", &first_bad, nb::arg("table"), nb::arg("threads"));
    module.def("check", &check_rows, nb::arg("table"), nb::arg("rows").noconvert(), nb::arg("body").noconvert(),
               nb::arg("threads"), nb::arg("instructions"));
    module.def("apply", &apply_rows, nb::arg("pieces"), nb::arg("rows").noconvert(), nb::arg("body").noconvert(),
               nb::arg("threads"), nb::arg("instructions"));
    module.def("count_held", &count_rows, nb::arg("pieces"), nb::arg("rows").noconvert(), nb::arg("body").noconvert(),
               nb::arg("counts").noconvert(), nb::arg("threads"), nb::arg("instructions"));
    module.def("resolve", &resolve_rows, nb::arg("pieces"), nb::arg("rows").noconvert(), nb::arg("body").noconvert(),
               nb::arg("under").none(), nb::arg("under_rows").noconvert(), nb::arg("starts").noconvert(),
               nb::arg("offsets").noconvert(), nb::arg("positions").noconvert(), nb::arg("bits").noconvert(),
               nb::arg("differences").noconvert(), nb::arg("threads"), nb::arg("instructions"));
    module.def("scatter", &scatter_staged, nb::arg("pieces"), nb::arg("staged"), nb::arg("threads"));
    module.def("mismatches", &count_mismatches, nb::arg("pieces"), nb::arg("staged"), nb::arg("threads"));
    module.def("count_merged", &count_merged, nb::arg("first"), nb::arg("second"), nb::arg("of_first").noconvert(),
               nb::arg("of_second").noconvert(), nb::arg("counts").noconvert(), nb::arg("threads"));
    module.def("merge", &merge_staged, nb::arg("table"), nb::arg("first"), nb::arg("second"),
               nb::arg("of_first").noconvert(), nb::arg("of_second").noconvert(), nb::arg("starts").noconvert(),
               nb::arg("offsets").noconvert(), nb::arg("positions").noconvert(), nb::arg("bits").noconvert(),
               nb::arg("threads"));
}

}  // namespace deltastore
