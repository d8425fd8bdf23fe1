// From the new bits of all runs to one ascending list, and its digest difference.
#pragma once

#include <cstddef>
#include <cstdint>

#include "decode_residues.hpp"
#include "merge_lists.hpp"
#include "position_digest.hpp"
#include "resolve_patch.hpp"

namespace deltastore {

// Closes the gaps that elements leave that are not held.
template <typename Element>
void keep_held(Resolving<Element> &patch, const unsigned char *held) {
    for (int number = 0; number < patch.parts.count; ++number) {
        RunPart &part = patch.parts.part[number];
        std::size_t kept = part.first;
        for (std::size_t i = part.first; i < part.first + part.count; ++i) {
            patch.positions[kept] = patch.positions[i];
            patch.old[kept] = patch.old[i];
            patch.fresh[kept] = patch.fresh[i];
            kept += held[i];
        }
        part.count = kept - part.first;
    }
}

template <typename Element>
std::uint64_t difference_of(const Resolving<Element> &patch) {
    const Places places(patch.array, patch.box);
    std::uint64_t total = 0;
    for (int number = 0; number < patch.parts.count; ++number) {
        const RunPart &part = patch.parts.part[number];
        Stretch stretch;
        total += position_difference(places, stretch, 0, patch.positions + part.first, patch.old + part.first,
                                     patch.fresh + part.first, part.count);
    }
    return total;
}

// All runs as one list, the shortest first so that few elements move often.
template <typename Element>
void merge_runs(const Resolving<Element> &patch, std::size_t total, std::uint32_t *positions, unsigned char *bits,
                ResolveWorker &worker) {
    List lists[kMaxRuns];
    const int count = patch.parts.count;
    for (int number = 0; number < count; ++number) {
        const RunPart &part = patch.parts.part[number];
        int place = number;
        for (; place > 0 && lists[place - 1].count > part.count; --place) lists[place] = lists[place - 1];
        const auto *fresh = reinterpret_cast<const unsigned char *>(patch.fresh + part.first);
        lists[place] = {patch.positions + part.first, fresh, part.count};
    }
    List merged = lists[0];
    for (int number = 1; number < count; ++number) {
        const bool is_last = number + 1 == count;
        Scratch *scratch = worker.merged[number % 2];
        auto *to_positions = is_last ? positions : scratch[0].room<std::uint32_t>(total);
        auto *to_bits = is_last ? bits : reinterpret_cast<unsigned char *>(scratch[1].room<Element>(total));
        merge_lists<Element>(merged, lists[number], to_positions, to_bits);
        merged = {to_positions, to_bits, merged.count + lists[number].count};
    }
    if (count == 1) merge_lists<Element>(merged, List{}, positions, bits);
}

}  // namespace deltastore
