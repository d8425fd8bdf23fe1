// Going through a patch a block at a time where memory runs through the held elements in one stride: while one block
// is worked on, the next is decoded and its lines are on their way.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "decode_residues.hpp"
#include "places.hpp"

namespace deltastore {

inline constexpr std::uint64_t kBlockWords = 4;  // of the high section that are decoded at a time
inline constexpr std::size_t kMostInBlock = kBlockWords * 64 + 16;

// A patch of runs, and what is needed to walk it.
struct LineWalk {
    const Patch &patch;
    std::uint64_t elements;      // of the chunk
    const unsigned char *end;    // of the readable bytes
    DecodeRun decode;
    const WindowPlaces &places;  // a line
    bool holds_all;              // whether it holds every element of the chunk
    std::uint32_t *positions;    // room for those of all runs, and kPositionSlack

    Span held(const std::uint32_t *first, std::size_t count) const {
        return holds_all ? Span{0, count} : places.within(first, count);
    }
};

// Part of a run whose positions and residues are known, and the bits that stand there.
template <typename Element>
struct LineBlock {
    unsigned width;
    std::size_t first;  // number of its first position among those of all runs
    std::size_t count;
    const std::uint32_t *positions;
    const Element *residues;
    const Element *old;
    const std::uint32_t *later;  // whose lines `use` is to ask for, so that some are on their way all the time
    std::size_t later_count;
};

// Loads the bits at `now`, and asks for the lines of `next`.
template <typename Element, typename Address>
void load_block(const std::uint32_t *now, std::size_t count, const std::uint32_t *next, std::size_t next_count,
                Address &&address, Element *old) {
    const std::size_t both = std::min(count, next_count);
    for (std::size_t i = 0; i < both; ++i) {
        prefetch(address(next[i]));
        old[i] = load_at<Element>(address(now[i]));
    }
    for (std::size_t i = both; i < next_count; ++i) prefetch(address(next[i]));
    for (std::size_t i = both; i < count; ++i) old[i] = load_at<Element>(address(now[i]));
}

// Calls use(block) for every block of every run; `old` has room for one element of every position. A reason that
// `use` gives ends it, as does one that a body gives that changed since it was checked.
template <typename Element, typename Address, typename Use>
Reason walk_line(const LineWalk &walk, Address &&address, Element *old, Use &&use) {
    Element residues[kMostInBlock + kResidueSlack];
    std::size_t first = 0;
    for (int number = 0; number < walk.patch.run_count; ++number) {
        const Run &run = walk.patch.runs[number];
        std::uint32_t *positions = walk.positions + first;
        RunCursor cursor;
        std::size_t done = 0;
        Span now{0, 0};
        Reason reason = walk.decode(run, walk.elements, walk.end, positions, cursor, kBlockWords);
        if (reason != Reason::none) return reason;
        load_block<Element>(positions, 0, positions, cursor.ready, address, old);
        while (done < run.count) {
            const std::size_t ready = cursor.ready;
            if (ready < run.count) {
                reason = walk.decode(run, walk.elements, walk.end, positions, cursor, kBlockWords);
                if (reason != Reason::none) return reason;
            }
            now = walk.held(positions + done, ready - done);
            const Span next = walk.held(positions + ready, cursor.ready - ready);
            const std::size_t at = done + now.begin;
            const std::size_t count = now.end - now.begin;
            const std::size_t sooner = (next.end - next.begin) / 2;
            load_block<Element>(positions + at, count, positions + ready + next.begin, sooner, address,
                                old + first + at);
            unpack_residues(run.residues + done / 8 * run.width, ready - done, run.width, residues);
            reason = use(LineBlock<Element>{run.width, first + at, count, positions + at, residues + now.begin,
                                            old + first + at, positions + ready + next.begin + sooner,
                                            next.end - next.begin - sooner});
            if (reason != Reason::none) return reason;
            done = ready;
        }
        first += run.count;
    }
    return Reason::none;
}

}  // namespace deltastore
