#include "apply.hpp"

#include <cstring>

#include "apply_line.hpp"
#include "decode_residues.hpp"
#include "places.hpp"

namespace deltastore {
namespace {

struct CheckWorker {
    SeenPositions seen;
    Scratch positions;
};

struct ApplyWorker {
    SeenPositions seen;
    Scratch positions;
    Scratch residues;
    Scratch old;
    Scratch fresh;
    std::vector<Window> windows;
    std::vector<WindowPlaces> places;
    std::vector<Span> spans;  // by window, then by part of the patch
};

// What a window may hold of each part of the patch; returns how many elements that is for all windows.
std::size_t find_spans(const RunParts &parts, const std::uint32_t *positions, ApplyWorker &worker) {
    worker.places.clear();
    worker.spans.clear();
    std::size_t total = 0;
    for (const Window &window : worker.windows) {
        const WindowPlaces &places = worker.places.emplace_back(window);
        for (int number = 0; number < parts.count; ++number) {
            const RunPart &part = parts.part[number];
            const Span span = places.within(positions + part.first, part.count);
            worker.spans.push_back({part.first + span.begin, part.first + span.end});
            total += span.end - span.begin;
        }
    }
    return total;
}

// The new bits of every element of every window, before the first is written.
template <typename Element>
bool resolve_windows(const RunParts &parts, bool floating, const std::uint32_t *positions, const Element *residues,
                     Element *old, Element *fresh, const ApplyWorker &worker) {
    auto span = worker.spans.begin();
    for (const WindowPlaces &places : worker.places) {
        for (int number = 0; number < parts.count; ++number, ++span) {
            const std::size_t count = span->end - span->begin;
            const Element *wanted = residues + span->begin;
            if (!places.line()) {
                for (std::size_t i = 0; i < count; ++i) old[i] = fitting_bits(wanted[i], floating);
            }
            places.each<Element>(positions + span->begin, count, [old](std::size_t i, std::uintptr_t address) {
                old[i] = load_at<Element>(address);
            });
            if (!new_bits(parts.part[number].width, floating, wanted, old, count, fresh)) return false;
            fresh += count;
        }
    }
    return true;
}

template <typename Element>
void write_windows(const RunParts &parts, const std::uint32_t *positions, const Element *fresh,
                   const ApplyWorker &worker) {
    auto span = worker.spans.begin();
    for (const WindowPlaces &places : worker.places) {
        for (int number = 0; number < parts.count; ++number, ++span) {
            const std::size_t count = span->end - span->begin;
            places.each<Element>(positions + span->begin, count, [fresh](std::size_t i, std::uintptr_t address) {
                store_at<Element>(address, fresh[i]);
            });
            fresh += count;
        }
    }
}

// The patch of a chunk of any windows.
template <typename Element>
Reason apply_to_windows(const Patch &patch, bool floating, const std::uint32_t *positions, ApplyWorker &worker) {
    const RunParts parts = parts_of(patch);
    const std::size_t total = find_spans(parts, positions, worker);
    Element *residues = worker.residues.room<Element>(patch.count + kResidueSlack);
    Element *old = worker.old.room<Element>(patch.count);
    Element *fresh = worker.fresh.room<Element>(total);
    unpack_patch(patch, residues);
    if (!resolve_windows(parts, floating, positions, residues, old, fresh, worker)) return Reason::does_not_fit;
    write_windows(parts, positions, fresh, worker);
    return Reason::none;
}

template <typename Element>
Reason apply_patch(const Patch &patch, const Box &box, const unsigned char *end, DecodeRun decode, bool floating,
                   ApplyWorker &worker) {
    Reason reason = Reason::none;
    if (worker.windows.size() == 1 &&
        apply_to_line<Element>(worker.windows[0], patch, box, end, decode, floating, worker.positions, worker.old,
                               reason)) {
        return reason;
    }
    std::uint32_t *positions = worker.positions.room<std::uint32_t>(patch.count + kPositionSlack);
    reason = decode_positions(patch, box.elements, end, decode, worker.seen, positions);
    return reason != Reason::none ? reason : apply_to_windows<Element>(patch, floating, positions, worker);
}

// The row was checked; a body that changes meanwhile is still refused where it would lead out of its chunk.
Reason apply_row(const Pieces &pieces, const Pack &pack, std::size_t number, DecodeRun decode, ApplyWorker &worker) {
    Row row;
    Box box;
    Patch patch;
    const Reason reason = open_row(pieces.table(), pack, number, row, box, patch);
    if (reason != Reason::none) return reason;
    pieces.windows(row.array, box, worker.windows);
    if (worker.windows.empty()) return Reason::none;
    const Array &array = pieces.table().arrays[row.array];
    return with_element(array.itemsize, [&](auto element) {
        return apply_patch<decltype(element)>(patch, box, pack.end(), decode, array.floating, worker);
    });
}

Reason check_row(const Table &table, const Pack &pack, std::size_t number, DecodeRun decode, CheckWorker &worker) {
    Row row;
    Box box;
    Patch patch;
    const Reason reason = open_row(table, pack, number, row, box, patch);
    if (reason != Reason::none || patch.raw != nullptr) return reason;
    std::uint32_t *positions = worker.positions.room<std::uint32_t>(patch.count + kPositionSlack);
    return decode_positions(patch, box.elements, pack.end(), decode, worker.seen, positions);
}

}  // namespace

void check_pack(const Table &table, const Pack &pack, DecodeRun decode, std::size_t threads, FirstBad &bad) {
    std::vector<CheckWorker> workers(threads);
    run_rows(threads, pack, bad, [&](std::size_t worker, std::size_t row) {
        return check_row(table, pack, row, decode, workers[worker]);
    });
}

void apply_pack(const Pieces &pieces, const Pack &pack, DecodeRun decode, std::size_t threads, FirstBad &bad) {
    check_pack(pieces.table(), pack, decode, threads, bad);
    if (bad.found()) return;
    std::vector<ApplyWorker> workers(threads);
    run_rows(threads, pack, bad, [&](std::size_t worker, std::size_t row) {
        return apply_row(pieces, pack, row, decode, workers[worker]);
    });
}

}  // namespace deltastore
