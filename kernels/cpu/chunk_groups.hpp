// Cutting a list of chunks into tasks: neighbours together, about as much memory in each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "table.hpp"

namespace deltastore {

struct ChunkNumber {
    std::uint32_t array = 0;
    std::uint32_t chunk = 0;
};

// Chunk numbers as Python gives them: 8 bytes each, at any alignment.
inline ChunkNumber chunk_number(const unsigned char *chunks, std::size_t index) {
    ChunkNumber number;
    std::memcpy(&number, chunks + index * sizeof number, sizeof number);
    return number;
}

// Where each group starts, and where the last one ends. A group ends after `bytes` of elements or `most` chunks.
inline std::vector<std::size_t> chunk_groups(const Table &table, const unsigned char *chunks, std::size_t count,
                                             std::uint64_t bytes, std::size_t most) {
    std::vector<std::uint64_t> sizes;  // of a whole chunk of each array
    for (const Array &array : table.arrays) {
        std::uint64_t size = array.itemsize;
        for (int axis = 0; axis < array.axes; ++axis) {
            const std::int64_t along = array.chunk[axis] < array.extent[axis] ? array.chunk[axis] : array.extent[axis];
            size *= static_cast<std::uint64_t>(along);
        }
        sizes.push_back(size);
    }
    std::vector<std::size_t> starts(1, 0);
    std::uint64_t held = 0;
    for (std::size_t index = 0; index < count; ++index) {
        const ChunkNumber number = chunk_number(chunks, index);
        held += number.array < sizes.size() ? sizes[number.array] : 0;
        if (held < bytes && index + 1 - starts.back() < most && index + 1 < count) continue;
        starts.push_back(index + 1);
        held = 0;
    }
    return starts;
}

}  // namespace deltastore
