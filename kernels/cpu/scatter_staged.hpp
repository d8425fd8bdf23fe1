// Staged bits as kernels see them: new bits for elements of some chunks (StagedBits of kernels/rows.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "merge_lists.hpp"
#include "table.hpp"

namespace deltastore {

struct Staged {
    const unsigned char *chunks = nullptr;  // 8 bytes each: array and chunk number
    std::size_t count = 0;
    const std::int64_t *starts = nullptr;  // count + 1
    const std::uint32_t *positions = nullptr;
    std::uint64_t position_count = 0;
    const std::int64_t *offsets = nullptr;  // count + 1
    const unsigned char *bits = nullptr;
    std::uint64_t bytes = 0;

    std::uint32_t array(std::size_t entry) const { return number(entry * 8); }
    std::uint32_t chunk(std::size_t entry) const { return number(entry * 8 + 4); }
    List list(std::size_t entry) const {
        return {positions + starts[entry], bits + offsets[entry],
                static_cast<std::size_t>(starts[entry + 1] - starts[entry])};
    }

  private:
    std::uint32_t number(std::size_t at) const {
        std::uint32_t value;
        std::memcpy(&value, chunks + at, sizeof value);
        return value;
    }
};

// The first entry that names no chunk, or whose positions do not ascend strictly within their chunk, or whose lists
// leave the buffers; `staged.count` where there is none.
std::size_t first_bad_entry(const Table &table, const Staged &staged, std::size_t threads);

}  // namespace deltastore
