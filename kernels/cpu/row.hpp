// Index rows as packs hold them, and why a patch is refused (kernels/rows.py has both for Python).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace deltastore {

inline constexpr std::size_t kRowBytes = 44;

struct Row {
    std::uint32_t array = 0;
    std::uint32_t chunk = 0;
    std::uint32_t length = 0;
    std::uint32_t count = 0;
    std::uint32_t encoding = 0;
    std::uint64_t difference = 0;  // 16 bytes of hash follow it, which kernels neither read nor write
};

inline Row read_row(const unsigned char *bytes) {
    Row row;
    std::uint32_t fields[5];
    std::memcpy(fields, bytes, sizeof fields);
    row.array = fields[0];
    row.chunk = fields[1];
    row.length = fields[2];
    row.count = fields[3];
    row.encoding = fields[4];
    std::memcpy(&row.difference, bytes + sizeof fields, sizeof row.difference);
    return row;
}

inline void write_row(unsigned char *bytes, const Row &row) {
    const std::uint32_t fields[5] = {row.array, row.chunk, row.length, row.count, row.encoding};
    std::memcpy(bytes, fields, sizeof fields);
    std::memcpy(bytes + sizeof fields, &row.difference, sizeof row.difference);
    std::memset(bytes + 28, 0, 16);
}

inline constexpr std::uint32_t kRuns = 0;
inline constexpr std::uint32_t kRaw = 1;

// Index into REASONS of kernels/rows.py.
enum class Reason : int {
    none = 0,
    no_such_chunk = 1,
    unknown_encoding = 2,
    cut_short = 3,
    run_count = 4,
    widths = 5,
    run_header = 6,
    bytes_left = 7,
    unused_bit = 8,
    other_count_in_run = 9,
    positions = 10,
    shared_position = 11,
    raw_size = 12,
    other_count_in_row = 13,
    does_not_fit = 14,
};

}  // namespace deltastore
