// Whether ascending lists of positions share one (DS033).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace deltastore {

// One mark for each position of a stretch of the chunk, whose number marks it: all lists go through one stretch,
// then through the next, over the same bytes. Clearing is rare, because no number comes twice between.
class SeenPositions {
  public:
    // `lists` of `counts` positions, `number` of them, each ascending. Cost: O(positions + stretches).
    bool share(const std::uint32_t *const *lists, const std::uint32_t *counts, int number) {
        std::uint32_t at[kMost] = {};
        bool shared = false;
        for (std::uint32_t stretch = next_stretch(lists, counts, number, at); stretch != kNone && !shared;
             stretch = next_stretch(lists, counts, number, at)) {
            const unsigned char mark = next_mark();
            const std::uint32_t end = (stretch + 1) * kStretch;
            for (int list = 0; list < number; ++list) {
                shared = see(lists[list], counts[list], end, mark, at[list]) || shared;
            }
        }
        return shared;
    }

    static constexpr int kMost = 6;  // lists

  private:
    static constexpr std::uint32_t kStretch = 1 << 15;
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};

    static std::uint32_t next_stretch(const std::uint32_t *const *lists, const std::uint32_t *counts, int number,
                                      const std::uint32_t *at) {
        std::uint32_t lowest = kNone;
        for (int list = 0; list < number; ++list) {
            if (at[list] < counts[list]) lowest = std::min(lowest, lists[list][at[list]] / kStretch);
        }
        return lowest;
    }

    unsigned char next_mark() {
        if (mark_ == 0) std::memset(marks_, 0, sizeof marks_);
        mark_ = static_cast<unsigned char>(mark_ == 255 ? 0 : mark_ + 1);
        return mark_ == 0 ? next_mark() : mark_;
    }

    bool see(const std::uint32_t *positions, std::uint32_t count, std::uint32_t end, unsigned char mark,
             std::uint32_t &at) {
        unsigned seen = 0;
        std::uint32_t i = at;
        for (; i < count && positions[i] < end; ++i) {
            unsigned char &there = marks_[positions[i] % kStretch];
            seen |= there == mark ? 1 : 0;
            there = mark;
        }
        at = i;
        return seen != 0;
    }

    unsigned char mark_ = 0;
    unsigned char marks_[kStretch];
};

}  // namespace deltastore
