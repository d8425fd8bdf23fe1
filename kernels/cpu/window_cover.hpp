// Which elements of a chunk its windows cover, and whether they cover any twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pieces.hpp"

namespace deltastore {

// Brings windows into ascending order of position. False where the positions of two are mixed or shared: their
// order says nothing then.
bool lie_apart(std::vector<Window> &windows);

// Whether two windows of one chunk cover the same positions.
bool same_places(const Window &a, const Window &b);

// One bit for each element of a chunk.
class Cover {
  public:
    void clear(std::uint64_t elements);
    // False where an element was covered already.
    bool add(const Window &window);
    bool within(const Cover &other) const;

  private:
    std::vector<std::uint64_t> words_;
};

}  // namespace deltastore
