#include "window_cover.hpp"

#include <algorithm>

#include "window_runs.hpp"

namespace deltastore {
namespace {

std::uint64_t last(const Window &window) {
    std::uint64_t position = 0;
    for (int d = 0; d < window.axes; ++d) {
        const WindowAxis &axis = window.axis[d];
        position = position * static_cast<std::uint64_t>(axis.extent) +
                   static_cast<std::uint64_t>(axis.low + axis.size - 1);
    }
    return position;
}

bool equal_axes(const Window &a, const Window &b) {
    if (a.axes != b.axes) return false;
    for (int d = 0; d < a.axes; ++d) {
        if (a.axis[d].extent != b.axis[d].extent || a.axis[d].low != b.axis[d].low || a.axis[d].size != b.axis[d].size)
            return false;
    }
    return true;
}

// The window with as few axes as its positions need, whatever its strides are: equal for equal positions.
Window positions_only(const Window &window) {
    Window joined;
    for (int d = 0; d < window.axes; ++d) {
        const WindowAxis &inner = window.axis[d];
        if (joined.axes > 0 && inner.low == 0 && inner.size == inner.extent) {
            WindowAxis &outer = joined.axis[joined.axes - 1];
            outer = {outer.extent * inner.extent, outer.low * inner.extent, outer.size * inner.extent, 0};
        } else {
            joined.axis[joined.axes++] = inner;
        }
    }
    return joined;
}

}  // namespace

bool lie_apart(std::vector<Window> &windows) {
    if (windows.size() < 2) return true;
    const auto before = [](const Window &a, const Window &b) { return a.first() < b.first(); };
    if (!std::is_sorted(windows.begin(), windows.end(), before)) std::sort(windows.begin(), windows.end(), before);
    for (std::size_t k = 1; k < windows.size(); ++k) {
        if (last(windows[k - 1]) >= windows[k].first()) return false;
    }
    return true;
}

bool same_places(const Window &a, const Window &b) {
    return equal_axes(a, b) || equal_axes(positions_only(a), positions_only(b));
}

void Cover::clear(std::uint64_t elements) { words_.assign(static_cast<std::size_t>(elements / 64 + 1), 0); }

bool Cover::add(const Window &window) {
    std::uint64_t twice = 0;
    for (WindowRuns run(window, 1); !run.done(); run.advance(run.left)) {
        std::uint64_t position = run.position;
        for (std::uint64_t left = run.left; left > 0;) {
            const std::uint64_t bit = position % 64;
            const std::uint64_t here = std::min<std::uint64_t>(64 - bit, left);
            const std::uint64_t mask = (~std::uint64_t{0} >> (64 - here)) << bit;
            std::uint64_t &word = words_[static_cast<std::size_t>(position / 64)];
            twice |= word & mask;
            word |= mask;
            position += here;
            left -= here;
        }
    }
    return twice == 0;
}

bool Cover::within(const Cover &other) const {
    for (std::size_t k = 0; k < words_.size(); ++k) {
        if ((words_[k] & ~other.words_[k]) != 0) return false;
    }
    return true;
}

}  // namespace deltastore
