#include "decode.hpp"

namespace deltastore {
namespace {

constexpr std::uint64_t kCountBytes = 4;
constexpr std::uint64_t kHeaderBytes = 8;
constexpr unsigned kMaxLowBits = 19;

bool is_width(unsigned width) { return width >= 2 && width <= 64 && (width & (width - 1)) == 0; }

// Whether a bit of the section at or above `bits` is set.
bool tail_is_set(const unsigned char *section, std::uint64_t bits) {
    const unsigned used = bits % 32;
    return used != 0 && (load_word<std::uint32_t>(section + bits / 32 * 4) >> used) != 0;
}

Reason read_raw(const Row &row, const unsigned char *data, std::uint64_t elements, unsigned bits, Patch &patch) {
    if (row.length != section_bytes(elements * bits)) return Reason::raw_size;
    if (tail_is_set(data, elements * bits)) return Reason::unused_bit;
    if (row.count != elements) return Reason::other_count_in_row;
    patch.raw = data;
    patch.count = elements;
    return Reason::none;
}

// The run whose header stands at `header` and whose sections start at `at`, which is moved to their end.
Reason read_run(const unsigned char *data, std::uint64_t length, std::uint64_t header, std::uint64_t elements,
                std::uint64_t &at, Run &run) {
    run.width = data[header];
    run.low_bits = data[header + 1];
    run.count = load_word<std::uint32_t>(data + header + 4);
    if (!is_width(run.width)) return Reason::widths;
    if (load_word<std::uint16_t>(data + header + 2) != 0 || run.low_bits > kMaxLowBits || run.count == 0 ||
        run.count > elements) {
        return Reason::run_header;
    }
    const std::uint64_t high = at + section_bytes(std::uint64_t{run.count} * run.low_bits);
    const std::uint64_t residues = high + section_bytes(high_bits(run, elements));
    const std::uint64_t end = residues + section_bytes(std::uint64_t{run.count} * run.width);
    if (end > length) return Reason::cut_short;
    run.low = data + at;
    run.high = data + high;
    run.residues = data + residues;
    at = end;
    const bool tails = tail_is_set(run.low, std::uint64_t{run.count} * run.low_bits) ||
                       tail_is_set(run.residues, std::uint64_t{run.count} * run.width);
    return tails ? Reason::unused_bit : Reason::none;
}

Reason read_runs(const Row &row, const unsigned char *data, std::uint64_t elements, unsigned bits, Patch &patch) {
    if (row.length < kCountBytes) return Reason::cut_short;
    const std::uint32_t runs = load_word<std::uint32_t>(data);
    if (runs < 1 || runs > kMaxRuns) return Reason::run_count;
    std::uint64_t at = kCountBytes + runs * kHeaderBytes;
    if (row.length < at) return Reason::cut_short;
    unsigned narrower = 0;
    for (std::uint32_t number = 0; number < runs; ++number) {
        Run &run = patch.runs[number];
        const Reason reason =
            read_run(data, row.length, kCountBytes + number * kHeaderBytes, elements, at, run);
        if (reason != Reason::none) return reason;
        if (run.width <= narrower || run.width > bits) return Reason::widths;
        narrower = run.width;
        patch.count += run.count;
    }
    patch.run_count = static_cast<int>(runs);
    if (at != row.length) return Reason::bytes_left;
    // More positions than elements: one comes twice. Known before there is memory for them.
    if (patch.count > elements) return Reason::shared_position;
    return patch.count == row.count ? Reason::none : Reason::other_count_in_row;
}

}  // namespace

Reason read_patch(const Row &row, const unsigned char *data, std::uint64_t elements, unsigned bits, Patch &patch) {
    patch.raw = nullptr;
    patch.run_count = 0;
    patch.count = 0;
    if (row.encoding == kRaw) return read_raw(row, data, elements, bits, patch);
    if (row.encoding == kRuns) return read_runs(row, data, elements, bits, patch);
    return Reason::unknown_encoding;
}

bool shares_position(const Patch &patch, const std::uint32_t *positions, SeenPositions &seen) {
    if (patch.run_count < 2) return false;
    const std::uint32_t *lists[kMaxRuns];
    std::uint32_t counts[kMaxRuns];
    for (int number = 0; number < patch.run_count; ++number) {
        lists[number] = positions;
        counts[number] = patch.runs[number].count;
        positions += counts[number];
    }
    return seen.share(lists, counts, patch.run_count);
}

Reason decode_positions(const Patch &patch, std::uint64_t elements, const unsigned char *end, DecodeRun decode,
                        SeenPositions &seen, std::uint32_t *positions) {
    if (patch.raw != nullptr) {
        for (std::uint32_t p = 0; p < elements; ++p) positions[p] = p;
        return Reason::none;
    }
    std::uint32_t *out = positions;
    for (int number = 0; number < patch.run_count; ++number) {
        RunCursor cursor;
        const Reason reason = decode(patch.runs[number], elements, end, out, cursor, kAllWords);
        if (reason != Reason::none) return reason;
        out += patch.runs[number].count;
    }
    return shares_position(patch, positions, seen) ? Reason::shared_position : Reason::none;
}

}  // namespace deltastore
