// Collects what changed in one chunk, then writes its patch and its row.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "changed.hpp"
#include "encode_chunk.hpp"
#include "encode_difference.hpp"
#include "encode_runs.hpp"
#include "encode_widths.hpp"
#include "row.hpp"
#include "window_runs.hpp"

namespace deltastore {

// First compare() for every pair of windows and finish(), or take(); then one of the writers.
template <typename Element>
class ChunkEncoder {
  public:
    ChunkEncoder(const ChunkJob &job, const Box &box, EncodeScratch &scratch)
        : job_(job),
          scratch_(scratch),
          elements_(box.elements),
          places_(*job.array, box),
          scan_(scan_for<Element>(job.instructions)),
          classify_(classify_for<Element>(job.instructions)) {
        const std::size_t room = static_cast<std::size_t>(elements_) + kListSlack;
        list_.at = scratch.at.of<std::uint16_t>(room);
        list_.before = scratch.before_bits.of<Element>(room);
        list_.after = scratch.after_bits.of<Element>(room);
        positions_ = scratch.positions.of<std::uint32_t>(room);
        residues_ = scratch.residues.of<Element>(room);
        classes_ = scratch.classes.of<std::uint8_t>(room);
    }

    bool seeded() const { return places_.seeded(); }
    std::size_t count() const { return list_.count; }
    std::uint64_t raw_bytes() const { return section_bytes(elements_ * sizeof(Element) * 8); }
    PatchPlan plan() const { return plan_patch(tally_, elements_); }

    void restart() {
        list_.count = 0;
        blocks_ = 0;
        difference_ = 0;
        std::fill(tally_, tally_ + kWidthClasses, 0);
        stretch_ = Stretch();
    }

    // Two windows of the same positions, which lie above all that came before. Only reads and lists: memory streams
    // best while nothing else is done, so what changed is looked at when the whole chunk is read.
    void compare(const Window &before, const Window &after) {
        WindowRuns was(before, sizeof(Element));
        WindowRuns is(after, sizeof(Element));
        while (!is.done()) {
            const std::uint64_t block = is.position / kScanBlock;
            end_blocks(block);
            const std::uint64_t end = (block + 1) * kScanBlock;
            const std::uint64_t here = std::min({was.left, is.left, end - is.position});
            const auto count = static_cast<std::size_t>(here);
            scan_(in_a_line(was, count, scratch_.line_before), in_a_line(is, count, scratch_.line_after), count,
                  static_cast<std::size_t>(is.position % kScanBlock), list_);
            was.advance(here);
            is.advance(here);
        }
    }

    // After the last window: what its patch and its row need to know of every change.
    void finish() {
        const auto difference = difference_for<Element, std::uint16_t>(job_.instructions);
        end_blocks((elements_ - 1) / kScanBlock + 1);
        std::size_t start = 0;
        for (std::uint64_t block = 0; block < blocks_; ++block) {
            const std::size_t end = ends_[block];
            const auto base = static_cast<std::uint32_t>(block * kScanBlock);
            for (std::size_t k = start; k < end; ++k) positions_[k] = base + list_.at[k];
            difference_ += difference(places_, stretch_, base, list_.at + start, list_.before + start,
                                      list_.after + start, end - start);
            start = end;
        }
        classify();
    }

    // Listed elements instead of windows: ascending, all within the chunk.
    void take(const ListedElements &listed) {
        list_.count = listed.count;
        std::memcpy(positions_, listed.positions, listed.count * sizeof(std::uint32_t));
        std::memcpy(list_.before, listed.before, listed.count * sizeof(Element));
        std::memcpy(list_.after, listed.after, listed.count * sizeof(Element));
        const auto difference = difference_for<Element, std::uint32_t>(job_.instructions);
        difference_ = difference(places_, stretch_, 0, positions_, list_.before, list_.after, listed.count);
        classify();
    }

    void write_runs_of(const PatchPlan &plan, PatchesOut &out) {
        const std::size_t room = static_cast<std::size_t>(elements_) + kListSlack;
        ChangedElements<Element> rest;
        if (plan.runs > 1) {
            rest.positions = scratch_.rest_positions.of<std::uint32_t>(room);
            rest.residues = scratch_.rest_residues.of<Element>(room);
            rest.classes = scratch_.rest_classes.of<std::uint8_t>(room);
        }
        unsigned char *patch = out.next(static_cast<std::size_t>(plan.bytes));
        write_runs<Element>({positions_, residues_, classes_, count()}, plan, elements_, rest, job_.instructions,
                            patch);
        out.add(row(plan.bytes, count(), kRuns), static_cast<std::uint32_t>(count()));
    }

    void write_raw(const Element *chunk, PatchesOut &out) {
        const auto bytes = static_cast<std::size_t>(raw_bytes());
        unsigned char *patch = out.next(bytes);
        std::memset(patch + bytes - 4, 0, 4);
        std::memcpy(patch, chunk, static_cast<std::size_t>(elements_) * sizeof(Element));
        out.add(row(bytes, elements_, kRaw), static_cast<std::uint32_t>(count()));
    }

  private:
    const unsigned char *in_a_line(const WindowRuns &run, std::size_t count, Room &room) {
        if (run.stride == static_cast<std::int64_t>(sizeof(Element))) {
            return reinterpret_cast<const unsigned char *>(run.address);
        }
        auto *line = room.of<Element>(kScanBlock);
        gather(run.address, run.stride, count, line);
        return reinterpret_cast<const unsigned char *>(line);
    }

    // The list up to here is that of the blocks below `block`.
    void end_blocks(std::uint64_t block) {
        while (blocks_ < block) ends_[blocks_++] = list_.count;
    }

    void classify() {
        classify_(list_.before, list_.after, list_.count, job_.array->floating, residues_, classes_, tally_);
    }

    Row row(std::uint64_t length, std::uint64_t count, std::uint32_t encoding) const {
        return {job_.array_number, job_.chunk,  static_cast<std::uint32_t>(length), static_cast<std::uint32_t>(count),
                encoding,          difference_};
    }

    const ChunkJob &job_;
    EncodeScratch &scratch_;
    std::uint64_t elements_;
    Places places_;
    Stretch stretch_;
    Scan<Element> scan_;
    Classify<Element> classify_;
    ChangedList<Element> list_;
    std::uint32_t *positions_;
    Element *residues_;
    std::uint8_t *classes_;
    std::size_t ends_[kMaxChunkElements / kScanBlock] = {};  // of the list, for each block
    std::uint64_t blocks_ = 0;
    std::uint32_t tally_[kWidthClasses] = {};
    std::uint64_t difference_ = 0;
};

}  // namespace deltastore
