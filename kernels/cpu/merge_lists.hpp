// Two ascending lists of positions with their bits, as one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace deltastore {

// Bits may have any alignment: they stand in a caller's buffer.
template <typename Element>
inline Element bits_at(const unsigned char *bits, std::size_t number) {
    Element element;
    std::memcpy(&element, bits + number * sizeof(Element), sizeof element);
    return element;
}

struct List {
    const std::uint32_t *positions = nullptr;
    const unsigned char *bits = nullptr;
    std::size_t count = 0;
};

// Positions that stand in both.
inline std::size_t count_shared(const List &first, const List &second) {
    std::size_t shared = 0;
    std::size_t i = 0;
    std::size_t j = 0;
    while (i < first.count && j < second.count) {
        const std::uint32_t a = first.positions[i];
        const std::uint32_t b = second.positions[j];
        shared += a == b ? 1 : 0;
        i += a <= b ? 1 : 0;
        j += b <= a ? 1 : 0;
    }
    return shared;
}

// Elements of the longer list that are looked at and moved at a time.
inline constexpr std::size_t kMergeStep = 8;

// Where the next elements of a union go.
struct MergeOut {
    std::uint32_t *positions;
    unsigned char *bits;

    template <typename Element>
    void copy(const List &list, std::size_t from, std::size_t count) const {
        std::memcpy(positions, list.positions + from, count * sizeof *positions);
        std::memcpy(bits, list.bits + from * sizeof(Element), count * sizeof(Element));
    }
    template <typename Element>
    void skip(std::size_t count) {
        positions += count;
        bits += count * sizeof(Element);
    }
};

// Moves the elements of `list` from number `from` on that are below `end`; returns the first that is not. A whole
// step is written always: there is room for it, because all of `list` goes to the union.
template <typename Element>
std::size_t move_below(const List &list, std::size_t from, std::uint32_t end, MergeOut &out) {
    while (list.count - from >= kMergeStep) {
        std::int32_t below = 0;
        for (std::size_t k = 0; k < kMergeStep; ++k) {
            below += static_cast<std::int32_t>(list.positions[from + k]) < static_cast<std::int32_t>(end) ? 1 : 0;
        }
        out.copy<Element>(list, from, kMergeStep);
        out.skip<Element>(static_cast<std::size_t>(below));
        from += static_cast<std::size_t>(below);
        if (below < static_cast<std::int32_t>(kMergeStep)) return from;
    }
    for (; from < list.count && list.positions[from] < end; ++from) {
        out.copy<Element>(list, from, 1);
        out.skip<Element>(1);
    }
    return from;
}

// The union, with the bits of `second` where a position stands in both; there is room for all of it. Between two
// elements of the shorter list those of the longer one move together.
template <typename Element>
void merge_lists(const List &first, const List &second, std::uint32_t *positions, unsigned char *bits) {
    const bool first_is_shorter = first.count < second.count;
    const List &few = first_is_shorter ? first : second;
    const List &many = first_is_shorter ? second : first;
    MergeOut out{positions, bits};
    std::size_t at = 0;
    for (std::size_t k = 0; k < few.count; ++k) {
        const std::uint32_t position = few.positions[k];
        at = move_below<Element>(many, at, position, out);
        const bool in_both = at < many.count && many.positions[at] == position;
        if (in_both && first_is_shorter) {
            out.copy<Element>(many, at, 1);
        } else {
            out.copy<Element>(few, k, 1);
        }
        out.skip<Element>(1);
        at += in_both ? 1 : 0;
    }
    if (at < many.count) out.copy<Element>(many, at, many.count - at);
}

}  // namespace deltastore
