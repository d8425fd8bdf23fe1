// One run of a patch: its sections, and its positions (SPEC section "Encoding 0: runs").
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "instructions.hpp"
#include "row.hpp"

namespace deltastore {

// A run whose header and section lengths were checked: every section lies within the patch.
struct Run {
    unsigned width = 0;     // of a residue, in bits
    unsigned low_bits = 0;  // L
    std::uint32_t count = 0;
    const unsigned char *low = nullptr;
    const unsigned char *high = nullptr;
    const unsigned char *residues = nullptr;
};

// Positions that a decoder may write beyond the last one, so that it can store whole vectors.
inline constexpr std::size_t kPositionSlack = 64;

inline std::uint64_t section_bytes(std::uint64_t bits) { return (bits + 31) / 32 * 4; }

inline std::uint64_t high_bits(const Run &run, std::uint64_t elements) {
    return run.count + ((elements - 1) >> run.low_bits);
}

template <typename Word>
inline Word load_word(const unsigned char *bytes) {
    Word word;
    std::memcpy(&word, bytes, sizeof word);
    return word;
}

// Word number `word` of 64 bits of a section of `bytes` bytes, a multiple of 4; the last may be half a one.
inline std::uint64_t section_word(const unsigned char *section, std::uint64_t bytes, std::uint64_t word) {
    const std::uint64_t at = word * 8;
    return bytes - at >= 8 ? load_word<std::uint64_t>(section + at) : load_word<std::uint32_t>(section + at);
}

// The low bits of position i: at most 19, from a whole byte on at most 26. The high section, of at least 4 bytes,
// follows the low one, so that the load stays within the patch.
inline std::uint32_t low_field(const Run &run, std::uint64_t i) {
    const std::uint64_t bit = i * run.low_bits;
    const std::uint32_t bits = load_word<std::uint32_t>(run.low + bit / 8) >> (bit % 8);
    return bits & ((std::uint32_t{1} << run.low_bits) - 1);
}

// How far a run is decoded.
struct RunCursor {
    std::uint64_t word = 0;   // of the high section, of 64 bits: the next to be read
    std::uint32_t found = 0;  // ones before it
    std::uint32_t ready = 0;  // positions that are complete; a multiple of 16 until the run ends
};

inline constexpr std::uint64_t kAllWords = ~std::uint64_t{0};

// Goes on by at most `words` words of the high section. The positions below `cursor.ready` are checked then: they
// ascend strictly and are in the chunk. At the end of the run, where all of them are ready, the rest of DS032 is
// checked too, and the high section's unused bits. `end` is that of the readable bytes around the run; there is
// room for `run.count + kPositionSlack` positions.
using DecodeRun = Reason (*)(const Run &run, std::uint64_t elements, const unsigned char *end,
                             std::uint32_t *positions, RunCursor &cursor, std::uint64_t words);

DecodeRun run_decoder(Instructions instructions);

// Null where this processor's kind has none.
DecodeRun avx2_run_decoder();
DecodeRun avx512_run_decoder();

// Part of the high section: what a call reads.
struct HighWords {
    std::uint64_t bytes;  // of the section
    std::uint64_t end;    // the first word that is not read
    bool last;            // whether that is the section's end
};

inline HighWords high_words(const Run &run, std::uint64_t elements, const RunCursor &cursor, std::uint64_t words) {
    const std::uint64_t bytes = section_bytes(high_bits(run, elements));
    const std::uint64_t all = (bytes + 7) / 8;
    const std::uint64_t left = all - cursor.word;
    return {bytes, words < left ? cursor.word + words : all, words >= left};
}

// From the high parts that stand in `positions` to the positions from number `cursor.ready` up to `until`; false
// where they do not ascend or leave the chunk.
bool join_low_bits(const Run &run, std::uint64_t elements, std::uint32_t *positions, RunCursor &cursor,
                   std::uint32_t until);

// Whether a bit of the high section beyond its length is set.
inline bool high_tail_is_set(const Run &run, std::uint64_t elements) {
    const std::uint64_t bits = high_bits(run, elements);
    const unsigned used = bits % 32;
    return used != 0 && (load_word<std::uint32_t>(run.high + bits / 32 * 4) >> used) != 0;
}

// What is to be said of the high section once all of it is read.
inline Reason check_high_end(const Run &run, std::uint64_t elements, std::uint32_t found) {
    if (found != run.count) return Reason::other_count_in_run;
    return high_tail_is_set(run, elements) ? Reason::unused_bit : Reason::none;
}

}  // namespace deltastore
