#include "scatter.hpp"

#include <vector>

#include "apply_pack.hpp"
#include "places.hpp"

namespace deltastore {
namespace {

template <typename Element>
struct Write {
    void operator()(std::uintptr_t address, Element wanted) const { store_at<Element>(address, wanted); }
};

template <typename Element>
struct Compare {
    std::uint64_t *differ;
    void operator()(std::uintptr_t address, Element wanted) const {
        *differ += load_at<Element>(address) != wanted ? 1 : 0;
    }
};

template <typename Element, typename Act>
void each_element(const std::vector<Window> &windows, const List &list, const Act &act) {
    for (const Window &window : windows) {
        const WindowPlaces places(window);
        const Span span = places.within(list.positions, list.count);
        const unsigned char *bits = list.bits + span.begin * sizeof(Element);
        places.each<Element>(list.positions + span.begin, span.end - span.begin,
                                        [&act, bits](std::size_t i, std::uintptr_t address) {
                                            act(address, bits_at<Element>(bits, i));
                                        });
    }
}

// Calls act(worker, windows, list, element) for every entry that has elements.
template <typename Act>
void each_entry(const Pieces &pieces, const Staged &staged, std::size_t threads, Act &&act) {
    std::vector<std::vector<Window>> windows(threads);
    run_ranges(
        threads, staged.count,
        [&](std::size_t entry) { return static_cast<std::uint64_t>(staged.starts[entry + 1] - staged.starts[entry]); },
        [&](std::size_t worker, std::size_t first, std::size_t last) {
            for (std::size_t entry = first; entry < last; ++entry) {
                const std::uint32_t number = staged.array(entry);
                const Array &array = pieces.table().arrays[number];
                const List list = staged.list(entry);
                if (list.count == 0) continue;
                pieces.windows(number, box_of(array, staged.chunk(entry)), windows[worker]);
                with_element(array.itemsize, [&](auto element) { act(worker, windows[worker], list, element); });
            }
        });
}

}  // namespace

void scatter(const Pieces &pieces, const Staged &staged, std::size_t threads) {
    each_entry(pieces, staged, threads,
               [](std::size_t, const std::vector<Window> &windows, const List &list, auto element) {
                   using Element = decltype(element);
                   each_element<Element>(windows, list, Write<Element>{});
               });
}

std::uint64_t mismatches(const Pieces &pieces, const Staged &staged, std::size_t threads) {
    std::vector<std::uint64_t> totals(threads, 0);
    each_entry(pieces, staged, threads,
               [&](std::size_t worker, const std::vector<Window> &windows, const List &list, auto element) {
                   using Element = decltype(element);
                   std::uint64_t differ = 0;
                   each_element<Element>(windows, list, Compare<Element>{&differ});
                   totals[worker] += differ;
               });
    std::uint64_t total = 0;
    for (const std::uint64_t part : totals) total += part;
    return total;
}

}  // namespace deltastore
