#include "decode_run.hpp"

namespace deltastore {
namespace {

unsigned lowest_one(std::uint64_t word) {
#if defined(__GNUC__)
    return static_cast<unsigned>(__builtin_ctzll(word));
#else
    unsigned place = 0;
    for (; (word & 1) == 0; word >>= 1) ++place;
    return place;
#endif
}

constexpr std::uint32_t kGroup = 16;

// The high part of position i is the place of the i-th one, less i.
Reason high_parts(const Run &run, const HighWords &words, std::uint32_t *positions, RunCursor &cursor) {
    std::uint32_t found = cursor.found;
    for (std::uint64_t word = cursor.word; word < words.end; ++word) {
        for (std::uint64_t ones = section_word(run.high, words.bytes, word); ones != 0; ones &= ones - 1) {
            if (found == run.count) return Reason::other_count_in_run;
            positions[found] = static_cast<std::uint32_t>(word * 64 + lowest_one(ones)) - found;
            ++found;
        }
    }
    cursor.word = words.end;
    cursor.found = found;
    return Reason::none;
}

Reason decode_run(const Run &run, std::uint64_t elements, const unsigned char *, std::uint32_t *positions,
                  RunCursor &cursor, std::uint64_t count) {
    const HighWords words = high_words(run, elements, cursor, count);
    Reason reason = high_parts(run, words, positions, cursor);
    if (reason == Reason::none && words.last) reason = check_high_end(run, elements, cursor.found);
    if (reason != Reason::none) return reason;
    const std::uint32_t until = words.last ? cursor.found : cursor.found / kGroup * kGroup;
    return join_low_bits(run, elements, positions, cursor, until) ? Reason::none : Reason::positions;
}

}  // namespace

bool join_low_bits(const Run &run, std::uint64_t elements, std::uint32_t *positions, RunCursor &cursor,
                   std::uint32_t until) {
    bool ascend = true;
    std::int64_t before = cursor.ready == 0 ? -1 : std::int64_t{positions[cursor.ready - 1]};
    for (std::uint32_t i = cursor.ready; i < until; ++i) {
        positions[i] = (positions[i] << run.low_bits) | low_field(run, i);
        ascend = ascend && std::int64_t{positions[i]} > before;
        before = positions[i];
    }
    cursor.ready = until;
    return ascend && before < static_cast<std::int64_t>(elements);
}

DecodeRun run_decoder(Instructions instructions) {
    DecodeRun decoder = nullptr;
    if (instructions == Instructions::avx512) decoder = avx512_run_decoder();
    if (instructions == Instructions::avx2) decoder = avx2_run_decoder();
    return decoder != nullptr ? decoder : decode_run;
}

}  // namespace deltastore
