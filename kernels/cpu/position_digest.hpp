// Where the elements of a chunk stand in their tensors, and the digest difference of some of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "table.hpp"
#include "weights.hpp"

#if defined(__GNUC__)
#define DELTASTORE_APART __attribute__((noinline))  // its loop wants all registers
#else
#define DELTASTORE_APART
#endif

namespace deltastore {

struct Factors {
    std::array<std::uint64_t, kBlock> of{};
};

constexpr Factors make_factors() {
    Factors factors;
    for (std::size_t j = 0; j < kBlock; ++j) factors.of[j] = position_factor(j);
    return factors;
}

alignas(64) inline constexpr Factors kFactors = make_factors();

// Positions [first, end) of a chunk that are neighbours in one tensor: position p has the flat index
// flat + (p - first). 64-bit wrap-around keeps the digest right whatever the shape.
struct Stretch {
    std::uint64_t first = 0;
    std::uint64_t end = 0;
    std::uint64_t flat = 0;
    std::uint64_t seed = 1;
};

// The map from positions to (member, flat index): affine along the axes that the chunk takes whole, and along the
// one outside them. What ChunkGrid.locate says for one position, this says for a stretch.
class Places {
  public:
    Places(const Array &array, const Box &box) : array_(&array), box_(&box), axis_(box.axes - 1) {
        while (axis_ > 0 && box.size[axis_] == array.extent[axis_]) {
            inner_ *= static_cast<std::uint64_t>(box.size[axis_]);
            --axis_;
        }
        length_ = axis_ == 0 ? inner_ : inner_ * static_cast<std::uint64_t>(box.size[axis_]);
    }

    // Whether there is a seed for every member of the chunk.
    bool seeded() const {
        return static_cast<std::uint64_t>(box_->start[0] + box_->size[0]) <= array_->seeds.size();
    }

    // The stretch that position p < box.elements lies in.
    Stretch at(std::uint64_t p) const {
        Stretch stretch;
        std::uint64_t rest = p / length_;
        stretch.first = rest * length_;
        stretch.end = stretch.first + length_;
        if (axis_ > 0) {
            stretch.flat = static_cast<std::uint64_t>(box_->start[axis_]) * inner_;
            std::uint64_t stride = static_cast<std::uint64_t>(array_->extent[axis_]) * inner_;
            for (int outer = axis_ - 1; outer > 0; --outer) {
                const auto size = static_cast<std::uint64_t>(box_->size[outer]);
                const std::uint64_t here = size == 1 ? 0 : rest % size;
                rest = size == 1 ? rest : rest / size;
                stretch.flat += (here + static_cast<std::uint64_t>(box_->start[outer])) * stride;
                stride *= static_cast<std::uint64_t>(array_->extent[outer]);
            }
        }
        stretch.seed = array_->seeds[static_cast<std::size_t>(static_cast<std::uint64_t>(box_->start[0]) + rest)];
        return stretch;
    }

  private:
    const Array *array_;
    const Box *box_;
    int axis_;
    std::uint64_t inner_ = 1;
    std::uint64_t length_ = 1;  // positions of one stretch
};

// Sum of (after - before) * w mod 2^64 over ascending positions base + at[k]. `stretch` is where the search
// starts and ends: keep it between calls, which go upwards within one chunk.
template <typename Element, typename Position>
DELTASTORE_APART std::uint64_t position_difference(const Places &places, Stretch &stretch, std::uint64_t base,
                                                   const Position *at, const Element *before, const Element *after,
                                                   std::size_t count) {
    std::uint64_t total = 0;
    std::size_t k = 0;
    while (k < count) {
        const std::uint64_t p = base + at[k];
        if (p >= stretch.end) stretch = places.at(p);
        const std::uint64_t flat = stretch.flat + (p - stretch.first);
        const std::uint64_t end = std::min(stretch.end, p + (kBlock - flat % kBlock)) - base;
        const std::uint64_t *factors = kFactors.of.data() + flat % kBlock;
        const std::uint64_t here = at[k];
        std::uint64_t sum = 0;
        do {
            const std::uint64_t change = static_cast<std::uint64_t>(after[k]) - static_cast<std::uint64_t>(before[k]);
            sum += change * factors[at[k] - here];
            ++k;
        } while (k < count && at[k] < end);
        total += sum * block_factor(flat / kBlock) * stretch.seed;
    }
    return total;
}

}  // namespace deltastore
