#include "encode_widths.hpp"

#include <algorithm>

namespace deltastore {
namespace {

constexpr std::uint64_t kCountBytes = 4;
constexpr std::uint64_t kHeaderBytes = 8;

int bit_length(std::uint64_t value) {
    int length = 0;
    for (; value != 0; value >>= 1) ++length;
    return length;
}

struct Sized {
    RunPlan run;
    std::uint64_t bytes = 0;
};

Sized sized_run(std::uint32_t count, std::uint64_t universe, int last_class) {
    Sized sized;
    sized.run = {2 << last_class, last_class, count, best_low_bits(count, universe)};
    sized.bytes = kHeaderBytes + positions_bytes(count, universe, sized.run.low) +
                  section_bytes(std::uint64_t{count} * static_cast<std::uint64_t>(sized.run.width));
    return sized;
}

bool widths_before(const PatchPlan &a, const PatchPlan &b) {
    return std::lexicographical_compare(a.run, a.run + a.runs, b.run, b.run + b.runs,
                                        [](const RunPlan &x, const RunPlan &y) { return x.width < y.width; });
}

bool better(const PatchPlan &a, const PatchPlan &b) {
    if (a.bytes != b.bytes) return a.bytes < b.bytes;
    if (a.runs != b.runs) return a.runs < b.runs;
    return widths_before(a, b);
}

}  // namespace

int best_low_bits(std::uint64_t count, std::uint64_t universe) {
    if (high_bits(count, universe, 0) <= 32) return 0;
    const int near = std::max(bit_length(universe / count) - 1, 0);
    int best = std::max(near - 2, 0);
    for (int low = best + 1; low < near + 2; ++low) {
        if (positions_bytes(count, universe, low) < positions_bytes(count, universe, best)) best = low;
    }
    return best;
}

// A run ends at a class that has elements: with any other width it would be as large or larger, and its widths
// would come later in order. So the sets to compare are those of the classes that occur, with the widest.
PatchPlan plan_patch(const std::uint32_t *tally, std::uint64_t universe) {
    int classes[kWidthClasses];
    int present = 0;
    for (int c = 0; c < kWidthClasses; ++c) {
        if (tally[c] != 0) classes[present++] = c;
    }
    Sized sized[kWidthClasses][kWidthClasses];  // of the run over present classes i .. j
    for (int i = 0; i < present; ++i) {
        std::uint32_t count = 0;
        for (int j = i; j < present; ++j) {
            count += tally[classes[j]];
            sized[i][j] = sized_run(count, universe, classes[j]);
        }
    }
    PatchPlan best;
    for (unsigned set = 0; set < 1u << (present - 1); ++set) {  // bit j: a run ends at present class j
        PatchPlan plan;
        plan.bytes = kCountBytes;
        int first = 0;
        for (int j = 0; j < present; ++j) {
            if (j + 1 < present && (set >> j & 1) == 0) continue;
            plan.run[plan.runs++] = sized[first][j].run;
            plan.bytes += sized[first][j].bytes;
            first = j + 1;
        }
        if (best.runs == 0 || better(plan, best)) best = plan;
    }
    return best;
}

}  // namespace deltastore
