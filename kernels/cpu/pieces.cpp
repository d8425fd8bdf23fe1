#include "pieces.hpp"

#include <algorithm>

namespace deltastore {
namespace {

// The window's axes before neighbours are joined. False where the piece does not meet the chunk.
bool intersect(const Piece &piece, const Box &box, Window &window) {
    window.axes = box.axes;
    window.address = piece.address;
    window.elements = 1;
    window.axis[0] = {box.size[0], static_cast<std::int64_t>(piece.member) - box.start[0], 1, 0};
    for (int d = 0; d + 1 < box.axes; ++d) {
        const std::int64_t start = box.start[d + 1];
        const std::int64_t low = std::max(piece.lo[d], start);
        const std::int64_t high = std::min(piece.lo[d] + piece.size[d], start + box.size[d + 1]);
        if (low >= high) return false;
        window.axis[d + 1] = {box.size[d + 1], low - start, high - low, piece.stride[d]};
        window.address += static_cast<std::uintptr_t>((low - piece.lo[d]) * piece.stride[d]);
        window.elements *= static_cast<std::uint64_t>(high - low);
    }
    return true;
}

// Whether the outer axis goes on where a run through all of the inner one ends.
bool joins(const WindowAxis &outer, const WindowAxis &inner) {
    return inner.low == 0 && inner.size == inner.extent &&
           (outer.size == 1 || outer.stride == inner.extent * inner.stride);
}

void join_axes(Window &window) {
    WindowAxis joined[kMaxAxes];
    int count = 0;  // from the innermost axis on
    for (int d = window.axes - 1; d >= 0; --d) {
        const WindowAxis &axis = window.axis[d];
        if (axis.extent == 1) continue;
        if (count > 0 && joins(axis, joined[count - 1])) {
            WindowAxis &inner = joined[count - 1];
            const std::int64_t run = inner.extent;
            inner = {axis.extent * run, axis.low * run, axis.size * run, inner.stride};
        } else {
            joined[count++] = axis;
        }
    }
    window.axes = count;
    std::reverse_copy(joined, joined + count, window.axis);
}

}  // namespace

std::uint64_t Window::first() const {
    std::uint64_t position = 0;
    for (int d = 0; d < axes; ++d) {
        position = position * static_cast<std::uint64_t>(axis[d].extent) + static_cast<std::uint64_t>(axis[d].low);
    }
    return position;
}

bool Window::contiguous(std::uint32_t itemsize) const {
    return axes == 0 || (axes == 1 && (axis[0].size == 1 || axis[0].stride == static_cast<std::int64_t>(itemsize)));
}

void Pieces::add(const Piece &piece) { pieces_.push_back(piece); }

void Pieces::finish() {
    std::stable_sort(pieces_.begin(), pieces_.end(), [](const Piece &a, const Piece &b) {
        return a.array != b.array ? a.array < b.array : a.member < b.member;
    });
    members_before_.assign(1, 0);
    for (const Array &array : table_->arrays) {
        members_before_.push_back(members_before_.back() + static_cast<std::size_t>(array.extent[0]));
    }
    first_.assign(members_before_.back() + 1, 0);
    for (const Piece &piece : pieces_) ++first_[members_before_[piece.array] + piece.member + 1];
    for (std::size_t member = 1; member < first_.size(); ++member) first_[member] += first_[member - 1];
}

void Pieces::windows(std::uint32_t array, const Box &box, std::vector<Window> &windows) const {
    windows.clear();
    const std::size_t member = members_before_[array] + static_cast<std::size_t>(box.start[0]);
    const std::size_t end = first_[member + static_cast<std::size_t>(box.size[0])];
    for (std::size_t number = first_[member]; number < end; ++number) {
        Window window;
        if (!intersect(pieces_[number], box, window)) continue;
        join_axes(window);
        windows.push_back(window);
    }
}

}  // namespace deltastore
