// Residues of a run, and the new bits that they stand for (SPEC section "Residues").
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "decode.hpp"
#include "ordered.hpp"

namespace deltastore {

// The width of a raw patch's "residues", which are the new bits themselves.
inline constexpr unsigned kAsIs = 0;

// Part of a patch's positions: those of one run, or all of a raw patch.
struct RunPart {
    unsigned width = kAsIs;
    std::size_t first = 0;
    std::size_t count = 0;
};

struct RunParts {
    int count = 0;
    RunPart part[kMaxRuns];
};

inline RunParts parts_of(const Patch &patch) {
    RunParts parts;
    if (patch.raw != nullptr) {
        parts.part[parts.count++] = {kAsIs, 0, static_cast<std::size_t>(patch.count)};
        return parts;
    }
    std::size_t first = 0;
    for (int number = 0; number < patch.run_count; ++number) {
        const Run &run = patch.runs[number];
        parts.part[parts.count++] = {run.width, first, run.count};
        first += run.count;
    }
    return parts;
}

// Elements beyond the last that `unpack_residues` may write.
inline constexpr std::size_t kResidueSlack = 32;

// The low `kept` bits of every lane of `lane` bits.
template <unsigned lane, unsigned kept>
constexpr std::uint64_t low_bits_of_lanes() {
    std::uint64_t mask = (std::uint64_t{1} << kept) - 1;
    for (unsigned whole = lane; whole < 64; whole *= 2) mask |= mask << whole;
    return mask;
}

// Fields of `width` bits, side by side in the low bits of every lane of 2 * `lane` bits, moved apart until every
// element has one: the upper half of a lane's fields moves up, and so on within the halves.
template <typename Element, unsigned width, unsigned lane = 32>
inline std::uint64_t spread(std::uint64_t word) {
    if constexpr (lane < sizeof(Element) * 8) {
        return word;
    } else {
        constexpr unsigned kept = lane / (sizeof(Element) * 8) * width;
        constexpr std::uint64_t mask = low_bits_of_lanes<lane, kept>();
        return spread<Element, width, lane / 2>((word | (word << (lane - kept))) & mask);
    }
}

template <typename Element, unsigned width>
void unpack_narrow(const unsigned char *section, std::size_t count, Element *out) {
    constexpr std::size_t fields = 32 / width;         // of a word of the section
    constexpr std::size_t step = 8 / sizeof(Element);  // elements that are written at once
    constexpr std::uint64_t mask = (std::uint64_t{1} << (step * width)) - 1;
    for (std::size_t i = 0; i < count; i += fields, section += 4) {
        const std::uint64_t word = load_word<std::uint32_t>(section);
        for (std::size_t k = 0; k < fields; k += step) {
            const std::uint64_t elements = spread<Element, width>((word >> (k * width)) & mask);
            std::memcpy(out + i + k, &elements, sizeof elements);
        }
    }
}

template <typename Element, typename Field>
void unpack_whole(const unsigned char *section, std::size_t count, Element *out) {
    for (std::size_t i = 0; i < count; ++i) {
        out[i] = static_cast<Element>(load_word<Field>(section + i * sizeof(Field)));
    }
}

// `out` has room for `count + kResidueSlack`. The section's words were checked to lie within the patch.
template <typename Element>
void unpack_residues(const unsigned char *section, std::size_t count, unsigned width, Element *out) {
    switch (width) {
        case 2: return unpack_narrow<Element, 2>(section, count, out);
        case 4: return unpack_narrow<Element, 4>(section, count, out);
        case 8: return unpack_whole<Element, std::uint8_t>(section, count, out);
        case 16: return unpack_whole<Element, std::uint16_t>(section, count, out);
        case 32: return unpack_whole<Element, std::uint32_t>(section, count, out);
        default: return unpack_whole<Element, std::uint64_t>(section, count, out);
    }
}

// Those of all runs one after another; of a raw patch the bits themselves.
template <typename Element>
void unpack_patch(const Patch &patch, Element *out) {
    if (patch.raw != nullptr) return unpack_whole<Element, Element>(patch.raw, patch.count, out);
    for (int number = 0; number < patch.run_count; ++number) {
        const Run &run = patch.runs[number];
        unpack_residues(run.residues, run.count, run.width, out);
        out += run.count;
    }
}

// Residues of `width` bits to new bits, given those that stand there; false where one does not fit (DS036). The
// three lists lie apart.
template <typename Element>
bool new_bits(unsigned width, bool floating, const Element *__restrict residues, const Element *__restrict old,
              std::size_t count, Element *__restrict fresh) {
    if (width == kAsIs) {
        std::memcpy(fresh, residues, count * sizeof(Element));
        return true;
    }
    if (width == sizeof(Element) * 8) {
        for (std::size_t i = 0; i < count; ++i) fresh[i] = ordered(residues[i], floating);
        return true;
    }
    const auto half = static_cast<Element>(Element{1} << (width - 1));
    const auto mask = static_cast<Element>(static_cast<Element>(half << 1) - 1);
    Element wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const Element at = ordered(old[i], floating);
        const auto field = static_cast<Element>(static_cast<Element>(residues[i] - at) & mask);
        wrong = static_cast<Element>(wrong | (field == half ? 1 : 0));
        const auto step = static_cast<Element>(static_cast<Element>(field ^ half) - half);
        fresh[i] = ordered(static_cast<Element>(at + step), floating);
    }
    return wrong == 0;
}

// Bits that every residue fits: what stands in for elements that nobody holds.
template <typename Element>
Element fitting_bits(Element residue, bool floating) {
    return ordered(residue, floating);
}

}  // namespace deltastore
