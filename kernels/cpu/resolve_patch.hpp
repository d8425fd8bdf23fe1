// What is worked out of one row's patch, and the memory that a worker keeps for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "apply_pack.hpp"
#include "decode_residues.hpp"
#include "pieces.hpp"

namespace deltastore {

struct ResolveWorker {
    SeenPositions seen;
    Scratch positions;
    Scratch held;
    Scratch residues;
    Scratch old;
    Scratch fresh;
    Scratch window_old;    // of a window that holds only some of the positions in its range
    Scratch window_fresh;
    Scratch is_under;      // whether bits are staged for a position already, and which
    Scratch under;
    Scratch merged[2][2];
    std::vector<Window> windows;
};

// One row's patch, decoded, and what is worked out of it.
template <typename Element>
struct Resolving {
    const Array &array;
    const Box &box;
    RunParts parts;
    std::uint32_t *positions;
    const Element *residues;
    const unsigned char *is_under;  // null where nothing is staged for this chunk
    const Element *under;
    Element *old;
    Element *fresh;
};

}  // namespace deltastore
