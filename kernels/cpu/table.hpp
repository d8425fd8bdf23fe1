// The arrays of a table as kernels see them: chunk grid, element, digest seeds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace deltastore {

inline constexpr int kMaxAxes = 17;  // a member axis and 16 of the tensor

struct Array {
    int axes = 0;  // the member axis first
    std::int64_t extent[kMaxAxes] = {};
    std::int64_t chunk[kMaxAxes] = {};
    std::int64_t counts[kMaxAxes] = {};  // chunks along each axis
    std::uint64_t chunks = 0;
    std::uint32_t itemsize = 0;
    bool floating = false;
    std::vector<std::uint64_t> seeds;  // one a member, or none where no kernel asked
};

// The elements of one chunk over (member, tensor axes).
struct Box {
    int axes = 0;
    std::int64_t start[kMaxAxes] = {};
    std::int64_t size[kMaxAxes] = {};
    std::uint64_t elements = 0;
};

struct Table {
    std::vector<Array> arrays;

    // Whether there is such a chunk; numbers come from untrusted rows.
    bool has(std::uint32_t array, std::uint32_t chunk) const {
        return array < arrays.size() && chunk < arrays[array].chunks;
    }
};

inline Box box_of(const Array &array, std::uint64_t chunk) {
    Box box;
    box.axes = array.axes;
    box.elements = 1;
    for (int axis = array.axes - 1; axis >= 0; --axis) {
        const auto count = static_cast<std::uint64_t>(array.counts[axis]);
        const std::int64_t place = static_cast<std::int64_t>(chunk % count);
        chunk /= count;
        const std::int64_t start = place * array.chunk[axis];
        const std::int64_t left = array.extent[axis] - start;
        box.start[axis] = start;
        box.size[axis] = left < array.chunk[axis] ? left : array.chunk[axis];
        box.elements *= static_cast<std::uint64_t>(box.size[axis]);
    }
    return box;
}

}  // namespace deltastore
