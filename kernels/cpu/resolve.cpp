#include "resolve.hpp"

#include <cstring>
#include <numeric>
#include <vector>

#include "decode_residues.hpp"
#include "places.hpp"
#include "resolve_finish.hpp"
#include "resolve_held.hpp"
#include "resolve_line.hpp"
#include "resolve_patch.hpp"
#include "resolve_windows.hpp"

namespace deltastore {
namespace {

// Where the results of one row go.
struct RowOut {
    std::size_t count;
    std::uint32_t *positions;
    unsigned char *bits;
    std::size_t bytes;
    std::uint64_t *difference;
};

// What a row's patch is read with.
struct Source {
    const Patch &patch;
    const unsigned char *end;
    DecodeRun decode;
};

// Positions, old and new bits of everything that is held, and the digest difference.
template <typename Element>
Reason resolve_elements(const Source &source, const List &staged, Resolving<Element> &resolving, ResolveWorker &worker,
                        std::uint64_t &difference) {
    const Patch &patch = source.patch;
    const std::uint64_t elements = resolving.box.elements;
    const bool holds_all = hold_all(worker.windows, elements);
    const WindowPlaces places(worker.windows[0]);
    const bool is_line = worker.windows.size() == 1 && places.line() && patch.raw == nullptr && staged.count == 0;
    Reason reason = Reason::none;
    if (is_line) {
        reason = resolve_on_line(patch, source.end, source.decode, places, resolving, holds_all, difference);
        if (reason == Reason::none && shares_position(patch, resolving.positions, worker.seen)) {
            reason = Reason::shared_position;
        }
    } else {
        reason = decode_positions(patch, elements, source.end, source.decode, worker.seen, resolving.positions);
        if (reason != Reason::none) return reason;
        reason = resolve_windows(patch, staged, resolving, worker) ? Reason::none : Reason::does_not_fit;
    }
    if (reason != Reason::none) return reason;
    if (!holds_all) {
        unsigned char *held = worker.held.room<unsigned char>(patch.count);
        std::memset(held, 0, patch.count);
        mark_held(worker.windows, resolving.parts, resolving.positions, held);
        keep_held(resolving, held);
    }
    if (!is_line) difference = difference_of(resolving);
    return Reason::none;
}

template <typename Element>
Reason resolve_patch(const Source &source, const Array &array, const Box &box, const List &staged,
                     ResolveWorker &worker, const RowOut &out) {
    const auto count = static_cast<std::size_t>(source.patch.count);
    Resolving<Element> resolving{array, box, parts_of(source.patch),
                                 worker.positions.room<std::uint32_t>(count + kPositionSlack), nullptr, nullptr,
                                 nullptr, worker.old.room<Element>(count), worker.fresh.room<Element>(count)};
    const Reason reason = resolve_elements(source, staged, resolving, worker, *out.difference);
    if (reason != Reason::none) return reason;
    std::size_t total = 0;
    for (int number = 0; number < resolving.parts.count; ++number) total += resolving.parts.part[number].count;
    // Only a body that changes under our hands makes another number than was counted.
    if (total != out.count) return Reason::other_count_in_row;
    merge_runs(resolving, total, out.positions, out.bits, worker);
    std::memset(out.bits + total * sizeof(Element), 0, out.bytes - total * sizeof(Element));
    return Reason::none;
}

Reason resolve_row(const Pieces &pieces, const Pack &pack, std::size_t number, const Under &under, DecodeRun decode,
                   ResolveWorker &worker, const RowOut &out) {
    Row row;
    Box box;
    Patch patch;
    const Reason reason = open_row(pieces.table(), pack, number, row, box, patch);
    if (reason != Reason::none) return reason;
    *out.difference = 0;
    pieces.windows(row.array, box, worker.windows);
    if (worker.windows.empty()) {
        // Nothing to work out, but every rule holds for it all the same.
        if (out.count != 0) return Reason::other_count_in_row;
        std::uint32_t *positions = worker.positions.room<std::uint32_t>(patch.count + kPositionSlack);
        return decode_positions(patch, box.elements, pack.end(), decode, worker.seen, positions);
    }
    const bool is_under = under.row != nullptr && under.row[number] >= 0;
    const List staged = is_under ? under.staged.list(static_cast<std::size_t>(under.row[number])) : List{};
    const Array &array = pieces.table().arrays[row.array];
    return with_element(array.itemsize, [&](auto element) {
        return resolve_patch<decltype(element)>({patch, pack.end(), decode}, array, box, staged, worker, out);
    });
}

Reason count_row(const Pieces &pieces, const Pack &pack, std::size_t number, DecodeRun decode, ResolveWorker &worker,
                 std::int64_t &held) {
    Row row;
    Box box;
    Patch patch;
    Reason reason = open_row(pieces.table(), pack, number, row, box, patch);
    if (reason != Reason::none) return reason;
    pieces.windows(row.array, box, worker.windows);
    if (worker.windows.empty()) return Reason::none;
    held = static_cast<std::int64_t>(patch.count);
    if (hold_all(worker.windows, box.elements)) return Reason::none;
    std::uint32_t *positions = worker.positions.room<std::uint32_t>(patch.count + kPositionSlack);
    reason = decode_positions(patch, box.elements, pack.end(), decode, worker.seen, positions);
    if (reason != Reason::none) return reason;
    unsigned char *flags = worker.held.room<unsigned char>(patch.count);
    std::memset(flags, 0, patch.count);
    mark_held(worker.windows, parts_of(patch), positions, flags);
    held = static_cast<std::int64_t>(std::accumulate(flags, flags + patch.count, std::size_t{0}));
    return Reason::none;
}

}  // namespace

void count_held(const Pieces &pieces, const Pack &pack, DecodeRun decode, std::size_t threads, std::int64_t *counts,
                FirstBad &bad) {
    std::vector<ResolveWorker> workers(threads);
    run_rows(threads, pack, bad, [&](std::size_t worker, std::size_t number) {
        counts[number] = 0;
        return count_row(pieces, pack, number, decode, workers[worker], counts[number]);
    });
}

void resolve(const Pieces &pieces, const Pack &pack, const Under &under, DecodeRun decode, std::size_t threads,
             const ResolvedBits &out, FirstBad &bad) {
    std::vector<ResolveWorker> workers(threads);
    run_rows(threads, pack, bad, [&](std::size_t worker, std::size_t number) {
        const RowOut here{static_cast<std::size_t>(out.starts[number + 1] - out.starts[number]),
                          out.positions + out.starts[number], out.bits + out.offsets[number],
                          static_cast<std::size_t>(out.offsets[number + 1] - out.offsets[number]),
                          out.differences + number};
        return resolve_row(pieces, pack, number, under, decode, workers[worker], here);
    });
}

}  // namespace deltastore
