#include "merge.hpp"

#include <cstring>
#include <vector>

#include "apply_pack.hpp"

namespace deltastore {
namespace {

List list_of(const Staged &staged, std::int64_t entry) {
    return entry < 0 ? List{} : staged.list(static_cast<std::size_t>(entry));
}

template <typename Act>
void each_chunk(const Staged &first, const Staged &second, const MergePlan &plan, std::size_t threads, Act &&act) {
    run_ranges(
        threads, plan.count,
        [&](std::size_t c) { return list_of(first, plan.first[c]).count + list_of(second, plan.second[c]).count; },
        [&](std::size_t worker, std::size_t begin, std::size_t end) {
            for (std::size_t c = begin; c < end; ++c) {
                act(worker, c, list_of(first, plan.first[c]), list_of(second, plan.second[c]));
            }
        });
}

}  // namespace

std::uint64_t merged_counts(const Staged &first, const Staged &second, const MergePlan &plan, std::int64_t *counts,
                            std::size_t threads) {
    std::vector<std::uint64_t> totals(threads, 0);
    each_chunk(first, second, plan, threads, [&](std::size_t worker, std::size_t c, const List &a, const List &b) {
        const std::size_t shared = count_shared(a, b);
        counts[c] = static_cast<std::int64_t>(a.count + b.count - shared);
        totals[worker] += shared;
    });
    std::uint64_t total = 0;
    for (const std::uint64_t part : totals) total += part;
    return total;
}

void merge(const Table &table, const Staged &first, const Staged &second, const MergePlan &plan,
           const std::int64_t *starts, const std::int64_t *offsets, std::uint32_t *positions, unsigned char *bits,
           std::size_t threads) {
    each_chunk(first, second, plan, threads, [&](std::size_t, std::size_t c, const List &a, const List &b) {
        const std::uint32_t number = plan.first[c] < 0 ? second.array(static_cast<std::size_t>(plan.second[c]))
                                                       : first.array(static_cast<std::size_t>(plan.first[c]));
        const auto count = static_cast<std::size_t>(starts[c + 1] - starts[c]);
        unsigned char *out = bits + offsets[c];
        with_element(table.arrays[number].itemsize, [&](auto element) {
            using Element = decltype(element);
            merge_lists<Element>(a, b, positions + starts[c], out);
            std::memset(out + count * sizeof(Element), 0,
                        static_cast<std::size_t>(offsets[c + 1] - offsets[c]) - count * sizeof(Element));
        });
    });
}

}  // namespace deltastore
