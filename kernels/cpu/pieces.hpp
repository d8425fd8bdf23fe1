// Pieces, and what one chunk meets of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "table.hpp"

namespace deltastore {

// A box of one tensor and its memory: element lo + i stands at address + sum of i_d * stride_d.
struct Piece {
    std::uint32_t array = 0;
    std::uint32_t member = 0;
    int axes = 0;  // of the tensor
    std::int64_t lo[kMaxAxes] = {};
    std::int64_t size[kMaxAxes] = {};
    std::int64_t stride[kMaxAxes] = {};  // bytes
    std::uintptr_t address = 0;          // may lie outside any object when strides are negative
};

// One axis of a chunk, and the part of it that a window covers.
struct WindowAxis {
    std::int64_t extent = 1;  // elements of the chunk along it
    std::int64_t low = 0;     // the window's first
    std::int64_t size = 1;    // the window's number
    std::int64_t stride = 0;  // bytes in memory
};

// The intersection of a chunk with one piece. Neighbouring axes that memory runs through in one stride are one
// axis, so that a chunk of a contiguous tensor has exactly one. Axes that the chunk has only one element along are
// left out; a window of a one-element chunk has no axis. `address` is that of the window's first element.
struct Window {
    int axes = 0;
    WindowAxis axis[kMaxAxes];
    std::uintptr_t address = 0;
    std::uint64_t elements = 0;

    // Chunk-relative row-major position of its first element.
    std::uint64_t first() const;
    // Whether it is the range first() .. first() + elements - 1 of positions, contiguous in memory.
    bool contiguous(std::uint32_t itemsize) const;
};

class Pieces {
  public:
    explicit Pieces(const Table &table) : table_(&table) {}

    void add(const Piece &piece);
    // Sorts by (array, member), keeping the order in which those of one tensor came. Call after the last add.
    void finish();

    const Table &table() const { return *table_; }
    // Every window of a chunk, by member, then in the order of the pieces. `windows` is emptied first.
    void windows(std::uint32_t array, const Box &box, std::vector<Window> &windows) const;

  private:
    const Table *table_;
    std::vector<Piece> pieces_;
    std::vector<std::size_t> members_before_;  // of each array: members of all arrays before it
    std::vector<std::size_t> first_;           // of each member: its first piece
};

}  // namespace deltastore
