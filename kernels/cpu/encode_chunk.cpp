#include "encode_chunk.hpp"

#include <algorithm>
#include <cstring>

#include "chunk_encoder.hpp"
#include "window_runs.hpp"

namespace deltastore {
namespace {

std::uint64_t elements_of(const std::vector<Window> &windows) {
    std::uint64_t elements = 0;
    for (const Window &window : windows) elements += window.elements;
    return elements;
}

// Whether each window of `after` has its partner in `before`, all in ascending order of position.
bool paired(const std::vector<Window> &before, const std::vector<Window> &after) {
    return before.size() == after.size() &&
           std::equal(before.begin(), before.end(), after.begin(),
                      [](const Window &a, const Window &b) { return same_places(a, b); });
}

// Makes one pair of windows of any two sets: copies of the chunk that are equal where `after` holds nothing.
template <typename Element>
Refusal copy_both(std::uint64_t elements, EncodeScratch &scratch) {
    scratch.held.clear(elements);
    for (const Window &window : scratch.after) {
        if (!scratch.held.add(window)) return Refusal::held_twice;
    }
    scratch.known.clear(elements);
    for (const Window &window : scratch.before) scratch.known.add(window);
    if (!scratch.held.within(scratch.known)) return Refusal::old_missing;
    auto *was = scratch.whole_before.of<Element>(static_cast<std::size_t>(elements));
    auto *is = scratch.whole_after.of<Element>(static_cast<std::size_t>(elements));
    std::memset(was, 0, static_cast<std::size_t>(elements) * sizeof(Element));
    for (auto window = scratch.before.rbegin(); window != scratch.before.rend(); ++window) {
        gather_window(*window, was);  // backwards, so that the first piece's bits stand in the end
    }
    std::memcpy(is, was, static_cast<std::size_t>(elements) * sizeof(Element));
    for (const Window &window : scratch.after) gather_window(window, is);
    scratch.before.assign(1, whole_window(elements, was, sizeof(Element)));
    scratch.after.assign(1, whole_window(elements, is, sizeof(Element)));
    return Refusal::none;
}

// Copies what `after` holds and makes its windows those of the copy: all that follows has one reading.
template <typename Element>
const Element *copy_after(std::uint64_t elements, EncodeScratch &scratch) {
    auto *is = scratch.whole_after.of<Element>(static_cast<std::size_t>(elements));
    for (Window &window : scratch.after) {
        gather_window(window, is);
        window = window_in(window, is, sizeof(Element));
    }
    return is;
}

template <typename Element>
Refusal encode_changed_as(const ChunkJob &job, const Pieces &before, const Pieces &after, EncodeScratch &scratch,
                          PatchesOut &out) {
    const Box box = box_of(*job.array, job.chunk);
    if (box.elements > kMaxChunkElements) return Refusal::too_large;
    ChunkEncoder<Element> encoder(job, box, scratch);
    if (!encoder.seeded()) return Refusal::no_seeds;
    after.windows(job.array_number, box, scratch.after);
    if (scratch.after.empty()) return Refusal::none;
    before.windows(job.array_number, box, scratch.before);
    const bool whole = elements_of(scratch.after) == box.elements;
    bool copied = false;
    if (!lie_apart(scratch.after) || !lie_apart(scratch.before) || !paired(scratch.before, scratch.after)) {
        before.windows(job.array_number, box, scratch.before);  // in the order of the pieces again
        const Refusal refusal = copy_both<Element>(box.elements, scratch);
        if (refusal != Refusal::none) return refusal;
        copied = true;
    }
    for (bool decided = false; !decided;) {
        encoder.restart();
        for (std::size_t k = 0; k < scratch.after.size(); ++k) encoder.compare(scratch.before[k], scratch.after[k]);
        if (encoder.count() == 0) return Refusal::none;
        encoder.finish();
        const PatchPlan plan = encoder.plan();
        decided = true;
        if (!whole || plan.bytes < encoder.raw_bytes()) {
            encoder.write_runs_of(plan, out);
        } else if (copied) {
            encoder.write_raw(scratch.whole_after.of<Element>(0), out);
        } else {
            copy_after<Element>(box.elements, scratch);
            copied = true;
            decided = false;
        }
    }
    return Refusal::none;
}

template <typename Element>
bool ascend(const ListedElements &listed, std::uint64_t elements) {
    std::uint32_t last = 0;
    for (std::size_t k = 0; k < listed.count; ++k) {
        std::uint32_t position;
        std::memcpy(&position, listed.positions + 4 * k, sizeof position);
        if (position >= elements || (k > 0 && position <= last)) return false;
        last = position;
    }
    return true;
}

// Whether `pieces` hold every element of the chunk; its bits are in scratch.whole_after then.
template <typename Element>
bool copy_whole(const ChunkJob &job, const Box &box, const Pieces &pieces, EncodeScratch &scratch) {
    pieces.windows(job.array_number, box, scratch.after);
    if (elements_of(scratch.after) < box.elements) return false;
    scratch.held.clear(box.elements);
    scratch.known.clear(box.elements);
    scratch.known.add(whole_window(box.elements, nullptr, sizeof(Element)));
    for (const Window &window : scratch.after) scratch.held.add(window);
    if (!scratch.known.within(scratch.held)) return false;
    auto *bits = scratch.whole_after.of<Element>(static_cast<std::size_t>(box.elements));
    for (auto window = scratch.after.rbegin(); window != scratch.after.rend(); ++window) gather_window(*window, bits);
    return true;
}

template <typename Element>
Refusal encode_listed_as(const ChunkJob &job, const ListedElements &listed, const Pieces *whole,
                         EncodeScratch &scratch, PatchesOut &out) {
    const Box box = box_of(*job.array, job.chunk);
    if (box.elements > kMaxChunkElements) return Refusal::too_large;
    if (!ascend<Element>(listed, box.elements)) return Refusal::positions;
    if (listed.count == 0) return Refusal::none;
    ChunkEncoder<Element> encoder(job, box, scratch);
    if (!encoder.seeded()) return Refusal::no_seeds;
    encoder.take(listed);
    const PatchPlan plan = encoder.plan();
    if (whole != nullptr && plan.bytes >= encoder.raw_bytes() && copy_whole<Element>(job, box, *whole, scratch)) {
        encoder.write_raw(scratch.whole_after.of<Element>(0), out);
    } else {
        encoder.write_runs_of(plan, out);
    }
    return Refusal::none;
}

}  // namespace

Refusal encode_changed_chunk(const ChunkJob &job, const Pieces &before, const Pieces &after, EncodeScratch &scratch,
                             PatchesOut &out) {
    switch (job.array->itemsize) {
        case 1: return encode_changed_as<std::uint8_t>(job, before, after, scratch, out);
        case 2: return encode_changed_as<std::uint16_t>(job, before, after, scratch, out);
        case 4: return encode_changed_as<std::uint32_t>(job, before, after, scratch, out);
        default: return encode_changed_as<std::uint64_t>(job, before, after, scratch, out);
    }
}

Refusal encode_listed_chunk(const ChunkJob &job, const ListedElements &listed, const Pieces *whole,
                            EncodeScratch &scratch, PatchesOut &out) {
    switch (job.array->itemsize) {
        case 1: return encode_listed_as<std::uint8_t>(job, listed, whole, scratch, out);
        case 2: return encode_listed_as<std::uint16_t>(job, listed, whole, scratch, out);
        case 4: return encode_listed_as<std::uint32_t>(job, listed, whole, scratch, out);
        default: return encode_listed_as<std::uint64_t>(job, listed, whole, scratch, out);
    }
}

}  // namespace deltastore
