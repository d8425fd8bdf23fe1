#include "scatter_staged.hpp"

#include <algorithm>

#include "apply_pack.hpp"

namespace deltastore {
namespace {

bool lies_within(const Staged &staged, std::size_t entry, std::uint64_t itemsize) {
    const std::int64_t start = staged.starts[entry];
    const std::int64_t end = staged.starts[entry + 1];
    const std::int64_t offset = staged.offsets[entry];
    if (start < 0 || end < start || static_cast<std::uint64_t>(end) > staged.position_count || offset < 0) return false;
    const auto at = static_cast<std::uint64_t>(offset);
    return at <= staged.bytes && static_cast<std::uint64_t>(end - start) <= (staged.bytes - at) / itemsize;
}

bool ascends(const List &list, std::uint64_t elements) {
    if (list.count == 0) return true;
    std::uint32_t wrong = 0;
    for (std::size_t i = 1; i < list.count; ++i) wrong |= list.positions[i] <= list.positions[i - 1] ? 1 : 0;
    return wrong == 0 && list.positions[list.count - 1] < elements;
}

bool is_good(const Table &table, const Staged &staged, std::size_t entry) {
    const std::uint32_t number = staged.array(entry);
    if (!table.has(number, staged.chunk(entry))) return false;
    const Array &array = table.arrays[number];
    if (!lies_within(staged, entry, array.itemsize)) return false;
    return ascends(staged.list(entry), box_of(array, staged.chunk(entry)).elements);
}

}  // namespace

std::size_t first_bad_entry(const Table &table, const Staged &staged, std::size_t threads) {
    FirstBad bad;
    run_ranges(
        threads, staged.count,
        [&](std::size_t entry) {
            // Not checked yet: any number, and only a guess at the work.
            const auto count = static_cast<std::uint64_t>(staged.starts[entry + 1]) -
                               static_cast<std::uint64_t>(staged.starts[entry]);
            return std::min(count, std::uint64_t{1} << 20);
        },
        [&](std::size_t, std::size_t first, std::size_t last) {
            for (std::size_t entry = first; entry < last && !bad.before(entry); ++entry) {
                if (!is_good(table, staged, entry)) bad.note(entry, Reason::no_such_chunk);
            }
        });
    return bad.found() ? bad.row() : staged.count;
}

}  // namespace deltastore
