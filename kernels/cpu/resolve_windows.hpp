// The new bits of a patch whose chunk has any windows, and bits that are staged for it already.
#pragma once

#include <cstddef>
#include <cstdint>

#include "decode_residues.hpp"
#include "merge_lists.hpp"
#include "places.hpp"
#include "resolve_patch.hpp"

namespace deltastore {

template <typename Element>
void find_under(const RunParts &parts, const std::uint32_t *positions, const List &staged, unsigned char *is_under,
                Element *under) {
    for (int number = 0; number < parts.count; ++number) {
        const RunPart &part = parts.part[number];
        std::size_t j = 0;
        for (std::size_t i = part.first; i < part.first + part.count; ++i) {
            while (j < staged.count && staged.positions[j] < positions[i]) ++j;
            const bool is_staged = j < staged.count && staged.positions[j] == positions[i];
            is_under[i] = is_staged ? 1 : 0;
            if (is_staged) under[i] = bits_at<Element>(staged.bits, j);
        }
    }
}

// The bits that stand at the positions of `span` in one window, to old[0] on.
template <typename Element>
void gather(const Resolving<Element> &patch, const WindowPlaces &places, const Span &span, Element *old) {
    const std::uint32_t *positions = patch.positions + span.begin;
    const std::size_t count = span.end - span.begin;
    if (patch.is_under == nullptr) {
        places.each<Element>(positions, count, [old](std::size_t i, std::uintptr_t address) {
            old[i] = load_at<Element>(address);
        });
        return;
    }
    const unsigned char *is_under = patch.is_under + span.begin;
    const Element *under = patch.under + span.begin;
    places.each<Element>(positions, count, [=](std::size_t i, std::uintptr_t address) {
        old[i] = is_under[i] != 0 ? under[i] : load_at<Element>(address);
    });
}

// Where a window holds only some of the positions in its range, the others must fit, and must not count.
template <typename Element>
bool resolve_some(const Resolving<Element> &patch, unsigned width, const WindowPlaces &places, const Span &span,
                  ResolveWorker &worker) {
    const std::size_t count = span.end - span.begin;
    const Element *residues = patch.residues + span.begin;
    Element *old = worker.window_old.room<Element>(count);
    Element *fresh = worker.window_fresh.room<Element>(count);
    for (std::size_t i = 0; i < count; ++i) old[i] = fitting_bits(residues[i], patch.array.floating);
    gather(patch, places, span, old);
    if (!new_bits(width, patch.array.floating, residues, old, count, fresh)) return false;
    Element *all_old = patch.old + span.begin;
    Element *all_fresh = patch.fresh + span.begin;
    places.each<Element>(patch.positions + span.begin, count, [=](std::size_t i, std::uintptr_t) {
        all_old[i] = old[i];
        all_fresh[i] = fresh[i];
    });
    return true;
}

// From the last window to the first, whose bits count where several hold an element.
template <typename Element>
bool resolve_decoded(const Resolving<Element> &patch, ResolveWorker &worker) {
    for (auto window = worker.windows.rbegin(); window != worker.windows.rend(); ++window) {
        const WindowPlaces places(*window);
        for (int number = 0; number < patch.parts.count; ++number) {
            const RunPart &part = patch.parts.part[number];
            Span span = places.within(patch.positions + part.first, part.count);
            span.begin += part.first;
            span.end += part.first;
            if (!places.line()) {
                if (!resolve_some(patch, part.width, places, span, worker)) return false;
                continue;
            }
            gather(patch, places, span, patch.old + span.begin);
            if (!new_bits(part.width, patch.array.floating, patch.residues + span.begin, patch.old + span.begin,
                          span.end - span.begin, patch.fresh + span.begin)) {
                return false;
            }
        }
    }
    return true;
}

// The patch's positions are decoded already; `staged` is empty where nothing is staged for the chunk.
template <typename Element>
bool resolve_windows(const Patch &patch, const List &staged, Resolving<Element> &resolving, ResolveWorker &worker) {
    const auto count = static_cast<std::size_t>(patch.count);
    Element *residues = worker.residues.room<Element>(count + kResidueSlack);
    unpack_patch(patch, residues);
    resolving.residues = residues;
    if (staged.count > 0) {
        unsigned char *is_under = worker.is_under.room<unsigned char>(count);
        Element *under = worker.under.room<Element>(count);
        find_under(resolving.parts, resolving.positions, staged, is_under, under);
        resolving.is_under = is_under;
        resolving.under = under;
    }
    return resolve_decoded(resolving, worker);
}

}  // namespace deltastore
