// What all kernels that read patches share: the rows of a pack, tasks of rows, and the first bad one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "decode.hpp"
#include "row.hpp"
#include "table.hpp"
#include "workers.hpp"

namespace deltastore {

// Memory that grows and is not kept when it does; what stands in it at first is anything.
class Scratch {
  public:
    template <typename T>
    T *room(std::size_t count) {
        const std::size_t bytes = count * sizeof(T);
        if (bytes > size_) {
            memory_.reset();
            size_ = 0;
            memory_.reset(::operator new(bytes + bytes / 4));
            size_ = bytes + bytes / 4;
        }
        return static_cast<T *>(memory_.get());
    }

  private:
    struct Free {
        void operator()(void *memory) const { ::operator delete(memory); }
    };
    std::unique_ptr<void, Free> memory_;
    std::size_t size_ = 0;
};

// Rows and their body, both untrusted.
class Pack {
  public:
    Pack(const unsigned char *rows, std::size_t count, const unsigned char *body, std::size_t bytes)
        : rows_(rows), body_(body), bytes_(bytes), offsets_(count + 1, 0) {
        for (std::size_t row = 0; row < count; ++row) {
            offsets_[row + 1] = offsets_[row] + read_row(rows + row * kRowBytes).length;
        }
    }

    std::size_t count() const { return offsets_.size() - 1; }
    Row row(std::size_t number) const { return read_row(rows_ + number * kRowBytes); }
    bool within(std::size_t number) const { return offsets_[number + 1] <= bytes_; }
    const unsigned char *data(std::size_t number) const { return body_ + offsets_[number]; }
    std::uint64_t length(std::size_t number) const { return offsets_[number + 1] - offsets_[number]; }
    const unsigned char *end() const { return body_ + bytes_; }

  private:
    const unsigned char *rows_;
    const unsigned char *body_;
    std::uint64_t bytes_;
    std::vector<std::uint64_t> offsets_;
};

// A row whose chunk exists and whose patch is in order as far as constant time tells.
inline Reason open_row(const Table &table, const Pack &pack, std::size_t number, Row &row, Box &box, Patch &patch) {
    row = pack.row(number);
    row.length = static_cast<std::uint32_t>(pack.length(number));  // rows may be written to meanwhile
    if (!table.has(row.array, row.chunk) || !pack.within(number)) return Reason::no_such_chunk;
    const Array &array = table.arrays[row.array];
    box = box_of(array, row.chunk);
    return read_patch(row, pack.data(number), box.elements, array.itemsize * 8, patch);
}

// Calls act(Element()) with the unsigned type of `itemsize` bytes.
template <typename Act>
auto with_element(std::uint32_t itemsize, Act &&act) {
    switch (itemsize) {
        case 1: return act(std::uint8_t{});
        case 2: return act(std::uint16_t{});
        case 4: return act(std::uint32_t{});
        default: return act(std::uint64_t{});
    }
}

// The lowest row that was refused, and why; the same whatever the number of threads.
class FirstBad {
  public:
    void note(std::size_t row, Reason reason) {
        const std::uint64_t mine = static_cast<std::uint64_t>(row) << 8 | static_cast<std::uint64_t>(reason);
        std::uint64_t known = packed_.load();
        while (mine < known && !packed_.compare_exchange_weak(known, mine)) {
        }
    }
    // Rows above it need not be looked at any more.
    bool before(std::size_t row) const { return packed_.load(std::memory_order_relaxed) >> 8 < row; }
    bool found() const { return packed_.load() != kNone; }
    std::size_t row() const { return static_cast<std::size_t>(packed_.load() >> 8); }
    Reason reason() const { return found() ? static_cast<Reason>(packed_.load() & 255) : Reason::none; }

  private:
    static constexpr std::uint64_t kNone = ~std::uint64_t{0};
    std::atomic<std::uint64_t> packed_{kNone};
};

inline constexpr std::uint64_t kTaskWeight = 1 << 16;

// Calls work(worker, first, last) for ranges of `count` items that weigh about kTaskWeight each: an item weighs
// weight(item), and 64 more for being one.
template <typename Weight, typename Work>
void run_ranges(std::size_t threads, std::size_t count, Weight &&weight, Work &&work) {
    std::vector<std::size_t> starts{0};
    std::uint64_t sum = 0;
    for (std::size_t item = 0; item < count; ++item) {
        sum += weight(item) + 64;
        if (sum >= kTaskWeight || item + 1 == count) {
            starts.push_back(item + 1);
            sum = 0;
        }
    }
    run_tasks(threads, starts.size() - 1, [&](std::size_t worker, std::size_t task) {
        work(worker, starts[task], starts[task + 1]);
    });
}

// Calls act(worker, row) for every row up to the first for which it gives a reason.
template <typename Act>
void run_rows(std::size_t threads, const Pack &pack, FirstBad &bad, Act &&act) {
    run_ranges(
        threads, pack.count(), [&](std::size_t row) { return pack.length(row); },
        [&](std::size_t worker, std::size_t first, std::size_t last) {
            for (std::size_t row = first; row < last && !bad.before(row); ++row) {
                const Reason reason = act(worker, row);
                if (reason != Reason::none) return bad.note(row, reason);
            }
        });
}

}  // namespace deltastore
