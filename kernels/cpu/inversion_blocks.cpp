// The inversion block by block, each against the digest of what was there before (kernels/reference/inversion.py).

#include <algorithm>
#include <cstring>

#include "block_digests.hpp"
#include "blocks_bind.hpp"
#include "inversion.hpp"
#include "inversion_lines.hpp"
#include "inversion_settle.hpp"
#include "plain_arithmetic.hpp"
#include "workers.hpp"

namespace {

using deltastore::BlockInputs;
using deltastore::Filled;
using deltastore::Instructions;
using deltastore::Line;
using deltastore::LineCursor;
using deltastore::Rule;
using deltastore::Run;
using deltastore::RunCursor;
using deltastore::Settling;
using deltastore::Starts;
using deltastore::Table64;
using deltastore::TwoDigests;
using deltastore::Uncertain;

constexpr std::size_t kGroup = 16;  // blocks of one task

// As the enumeration in kernels/inversion.py.
enum Outcome : std::uint8_t { kExplained = 0, kSettled = 1, kUnchanged = 2, kUnexplained = 3 };

using Coefficients = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Wanted = nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

struct Buffers {
    std::uint16_t *now;
    std::uint16_t *old;
    std::uint64_t *digests;
    std::uint8_t *outcomes;
    std::uint16_t *uncertain;
};

Outcome outcome_of(const Uncertain &found, TwoDigests digests, std::uint64_t wanted, const Buffers &out,
                   std::int64_t start, std::int64_t end, const RunCursor &runs) {
    if (digests.second == wanted) return kExplained;
    std::uint16_t *const old = out.old + start;
    if (found.count > 0 && found.count <= deltastore::kMostUncertain &&
        Settling(found, old, start, wanted - digests.second, runs).settle()) {
        return kSettled;
    }
    if (digests.first != wanted) return kUnexplained;
    std::memcpy(old, out.now + start, static_cast<std::size_t>(end - start) * sizeof *old);
    return kUnchanged;
}

void invert(const Starts &starts, const Table64 &lines, const Table64 &runs, const Coefficients &rules,
            const Wanted &wanted, const Filled<std::uint16_t> &now, const Filled<std::uint16_t> &old,
            const Filled<std::uint64_t> &digests, const Filled<std::uint8_t> &outcomes,
            const Filled<std::uint16_t> &uncertain, std::size_t threads, int best) {
    const nb::gil_scoped_release released;
    const Instructions instructions = deltastore::usable_instructions(best);
    const deltastore::InvertBlock invert_block = deltastore::invert_block_for(instructions);
    const auto *rule = reinterpret_cast<const Rule *>(rules.data());
    const Buffers out{now.data(), old.data(), digests.data(), outcomes.data(), uncertain.data()};
    const std::size_t blocks = wanted.shape(0);
    deltastore::run_tasks(threads, (blocks + kGroup - 1) / kGroup, [&](std::size_t, std::size_t group) {
        const deltastore::PlainArithmetic plain;
        const std::int64_t *place = starts.data() + group * kGroup;
        LineCursor line(deltastore::rows_of<Line>(lines), lines.shape(0), *place);
        RunCursor run(deltastore::rows_of<Run>(runs), runs.shape(0), *place);
        for (std::size_t block = group * kGroup; block < std::min(blocks, (group + 1) * kGroup); ++block, ++place) {
            const BlockInputs in = line.inputs(place[0], place[1]);
            Uncertain found;
            invert_block(in.of[0], in.of[1], in.of[2], static_cast<std::size_t>(place[1] - place[0]), rule[in.rule],
                         out.now + place[0], out.old + place[0], found);
            const RunCursor first = run;
            const TwoDigests sums = deltastore::digest_two(out.now, out.old, place[0], place[1], run, instructions);
            out.digests[block] = sums.first;
            out.uncertain[block] = static_cast<std::uint16_t>(found.count);
            out.outcomes[block] = outcome_of(found, sums, wanted.data()[block], out, place[0], place[1], first);
        }
    });
}

}  // namespace

void bind_inversion(nb::module_ &module) {
    module.def("invert", &invert, nb::arg("starts").noconvert(), nb::arg("lines").noconvert(),
               nb::arg("runs").noconvert(), nb::arg("rules").noconvert(), nb::arg("wanted").noconvert(),
               nb::arg("new").noconvert(), nb::arg("old").noconvert(), nb::arg("digests").noconvert(),
               nb::arg("outcomes").noconvert(), nb::arg("uncertain").noconvert(), nb::arg("threads"),
               nb::arg("instructions"));
}
