// Walking a window in ascending order of position, and copying it in and out of its shape.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pieces.hpp"

namespace deltastore {

// A window line by line: `left` elements from position `position` on, the first at `address`, each `stride` bytes
// after the one before. Positions of a line are consecutive.
class WindowRuns {
  public:
    WindowRuns(const Window &window, std::size_t itemsize)
        : position(window.first()), address(window.address), outer_(std::max(window.axes - 1, 0)) {
        std::uint64_t step = 1;
        if (window.axes > 0) {
            const WindowAxis &line = window.axis[window.axes - 1];
            line_ = static_cast<std::uint64_t>(line.size);
            stride = line.size == 1 ? static_cast<std::int64_t>(itemsize) : line.stride;
            step = static_cast<std::uint64_t>(line.extent);
        } else {
            stride = static_cast<std::int64_t>(itemsize);
        }
        for (int d = outer_ - 1; d >= 0; --d) {
            size_[d] = static_cast<std::uint64_t>(window.axis[d].size);
            memory_[d] = static_cast<std::uint64_t>(window.axis[d].stride);
            step_[d] = step;
            step *= static_cast<std::uint64_t>(window.axis[d].extent);
        }
        left = line_;
        line_position_ = position;
        line_address_ = address;
    }

    bool done() const { return left == 0; }

    // Goes on by `count` elements, at most `left`.
    void advance(std::uint64_t count) {
        position += count;
        address += static_cast<std::uintptr_t>(count * static_cast<std::uint64_t>(stride));
        left -= count;
        if (left == 0) next_line();
    }

    std::uint64_t position;
    std::uintptr_t address;
    std::uint64_t left = 1;
    std::int64_t stride = 0;

  private:
    void next_line() {
        for (int d = outer_ - 1; d >= 0; --d) {
            if (++index_[d] < size_[d]) {
                line_position_ += step_[d];
                line_address_ += static_cast<std::uintptr_t>(memory_[d]);
                position = line_position_;
                address = line_address_;
                left = line_;
                return;
            }
            line_position_ -= (size_[d] - 1) * step_[d];
            line_address_ -= static_cast<std::uintptr_t>((size_[d] - 1) * memory_[d]);
            index_[d] = 0;
        }
    }

    int outer_;
    std::uint64_t line_ = 1;
    std::uint64_t line_position_ = 0;
    std::uintptr_t line_address_ = 0;
    std::uint64_t index_[kMaxAxes] = {};
    std::uint64_t size_[kMaxAxes] = {};
    std::uint64_t memory_[kMaxAxes] = {};  // bytes from one line to the next; wraps where strides are negative
    std::uint64_t step_[kMaxAxes] = {};    // positions from one line to the next
};

// `count` elements that stand `stride` bytes apart -> one after another.
template <typename Element>
inline void gather(std::uintptr_t address, std::int64_t stride, std::size_t count, Element *out) {
    if (stride == static_cast<std::int64_t>(sizeof(Element))) {
        std::memcpy(out, reinterpret_cast<const void *>(address), count * sizeof(Element));
        return;
    }
    for (std::size_t k = 0; k < count; ++k) {
        std::memcpy(out + k, reinterpret_cast<const void *>(address), sizeof(Element));
        address += static_cast<std::uintptr_t>(stride);
    }
}

// The elements of a window -> their positions in `chunk`.
template <typename Element>
inline void gather_window(const Window &window, Element *chunk) {
    for (WindowRuns run(window, sizeof(Element)); !run.done(); run.advance(run.left)) {
        gather(run.address, run.stride, run.left, chunk + run.position);
    }
}

// The same elements of the chunk, in a buffer that holds all of it in row-major order.
inline Window window_in(const Window &window, const void *chunk, std::size_t itemsize) {
    Window copy = window;
    std::int64_t stride = static_cast<std::int64_t>(itemsize);
    for (int d = copy.axes - 1; d >= 0; --d) {
        copy.axis[d].stride = stride;
        stride *= copy.axis[d].extent;
    }
    copy.address = reinterpret_cast<std::uintptr_t>(chunk) + static_cast<std::uintptr_t>(window.first() * itemsize);
    return copy;
}

// The window of all elements of a chunk, in such a buffer.
inline Window whole_window(std::uint64_t elements, const void *chunk, std::size_t itemsize) {
    Window window;
    window.axes = 1;
    const auto size = static_cast<std::int64_t>(elements);
    window.axis[0] = {size, 0, size, static_cast<std::int64_t>(itemsize)};
    window.address = reinterpret_cast<std::uintptr_t>(chunk);
    window.elements = elements;
    return window;
}

}  // namespace deltastore
