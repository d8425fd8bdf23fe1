// From positions in a chunk to addresses in one window.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pieces.hpp"

namespace deltastore {

// Part of an ascending list: numbers begin .. end - 1.
struct Span {
    std::size_t begin = 0;
    std::size_t end = 0;
};

// Addresses are numbers until they are known to be an element's: those between may lie outside any object.
template <typename Element>
inline Element load_at(std::uintptr_t address) {
    Element element;
    std::memcpy(&element, reinterpret_cast<const void *>(address), sizeof element);
    return element;
}

template <typename Element>
inline void store_at(std::uintptr_t address, Element element) {
    std::memcpy(reinterpret_cast<void *>(address), &element, sizeof element);
}

// A hint; never an access. Into the second-level cache, which has more lines on their way at once than the first
// one: a quarter to a half faster than a hint for the first, also where the line is written next.
inline void prefetch(std::uintptr_t address) {
#if defined(__GNUC__)
    __builtin_prefetch(reinterpret_cast<const void *>(address), 0, 2);
#else
    (void)address;
#endif
}

// Positions whose places are worked out at a time where memory does not run through them in one stride.
inline constexpr std::size_t kPlaces = 256;

// Positions ahead of which memory is asked for.
inline constexpr std::size_t kAhead = 256;

struct PlaceList {
    std::size_t count = 0;
    std::uint32_t number[kPlaces];  // of the position among those asked for
    std::uintptr_t address[kPlaces];
};

// A window made ready for look-ups; it must outlive this.
class WindowPlaces {
  public:
    explicit WindowPlaces(const Window &window) : window_(window), first_(window.first()), last_(0) {
        for (int d = 0; d < window.axes; ++d) {
            const WindowAxis &axis = window.axis[d];
            last_ = last_ * static_cast<std::uint64_t>(axis.extent) + static_cast<std::uint64_t>(axis.low + axis.size - 1);
            if (!line()) per_extent_[d] = 1.0f / static_cast<float>(axis.extent);
        }
        if (line()) {
            stride_ = window.axes == 0 ? 0 : static_cast<std::uintptr_t>(window.axis[0].stride);
            base_ = window.address - static_cast<std::uintptr_t>(first_) * stride_;
        }
    }

    // Whether every position of the window's range is held, at `at(position)`.
    bool line() const { return window_.axes <= 1; }
    std::uintptr_t base() const { return base_; }
    std::uintptr_t stride() const { return stride_; }

    // The positions within the window's range.
    Span within(const std::uint32_t *positions, std::size_t count) const {
        const auto *begin = std::lower_bound(positions, positions + count, static_cast<std::uint32_t>(first_));
        const auto *end = std::upper_bound(begin, positions + count, static_cast<std::uint32_t>(last_));
        return {static_cast<std::size_t>(begin - positions), static_cast<std::size_t>(end - positions)};
    }

    // Which of at most kPlaces positions within the range are held, and where.
    void list(const std::uint32_t *positions, std::size_t count, PlaceList &places) const {
        std::uint32_t rest[kPlaces];
        std::uint32_t inside[kPlaces];
        std::uintptr_t address[kPlaces];
        for (std::size_t i = 0; i < count; ++i) {
            rest[i] = positions[i];
            inside[i] = 1;
            address[i] = window_.address;
        }
        for (int d = window_.axes - 1; d >= 0; --d) along(d, count, rest, inside, address);
        std::size_t held = 0;
        for (std::size_t i = 0; i < count; ++i) {
            places.number[held] = static_cast<std::uint32_t>(i);
            places.address[held] = address[i];
            held += inside[i];
        }
        places.count = held;
    }

  // Calls visit(number, address) for every held one of the positions, which are within the range, in their order.
    // Lines that are touched soon are asked for ahead, so that many are on their way at once.
    template <typename Element, typename Visit>
    void each(const std::uint32_t *positions, std::size_t count, Visit &&visit) const {
        if (!line()) return each_listed(positions, count, visit);
        const std::uintptr_t base = base_;
        if (stride_ == sizeof(Element)) {
            each_at(positions, count, [base](std::uint32_t p) { return base + p * sizeof(Element); }, visit);
        } else {
            const std::uintptr_t stride = stride_;
            each_at(positions, count, [base, stride](std::uint32_t p) { return base + p * stride; }, visit);
        }
    }

  private:
    template <typename Address, typename Visit>
    static void each_at(const std::uint32_t *positions, std::size_t count, Address &&address, Visit &&visit) {
        const std::size_t ahead = std::min(count, kAhead);
        for (std::size_t i = 0; i < ahead; ++i) prefetch(address(positions[i]));
        std::size_t i = 0;
        for (; i + ahead < count; ++i) {
            prefetch(address(positions[i + ahead]));
            visit(i, address(positions[i]));
        }
        for (; i < count; ++i) visit(i, address(positions[i]));
    }

    template <typename Visit>
    void each_listed(const std::uint32_t *positions, std::size_t count, Visit &&visit) const {
        PlaceList places;
        for (std::size_t first = 0; first < count; first += kPlaces) {
            list(positions + first, std::min(count - first, kPlaces), places);
            for (std::size_t i = 0; i < places.count; ++i) prefetch(places.address[i]);
            for (std::size_t i = 0; i < places.count; ++i) visit(first + places.number[i], places.address[i]);
        }
    }

    // The quotient by an axis's extent: positions are below 2^20, so that p + 1/2 is exact and the two roundings
    // move the quotient by less than half of 1 / extent, whichever way they go.
    void along(int d, std::size_t count, std::uint32_t *rest, std::uint32_t *inside, std::uintptr_t *address) const {
        const WindowAxis &axis = window_.axis[d];
        const float per_extent = per_extent_[d];
        const auto extent = static_cast<std::uint32_t>(axis.extent);
        const auto low = static_cast<std::uint32_t>(axis.low);
        const auto size = static_cast<std::uint32_t>(axis.size);
        const auto stride = static_cast<std::uintptr_t>(axis.stride);
        for (std::size_t i = 0; i < count; ++i) {
            const float halves = static_cast<float>(static_cast<std::int32_t>(rest[i])) + 0.5f;
            const auto quotient = static_cast<std::uint32_t>(static_cast<std::int32_t>(halves * per_extent));
            const std::uint32_t here = rest[i] - quotient * extent - low;
            inside[i] &= here < size ? 1 : 0;
            address[i] += here * stride;
            rest[i] = quotient;
        }
    }

    const Window &window_;
    std::uint64_t first_;
    std::uint64_t last_;
    std::uintptr_t base_ = 0;
    std::uintptr_t stride_ = 0;
    float per_extent_[kMaxAxes];
};

}  // namespace deltastore
