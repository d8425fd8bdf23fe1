// Checking the patches of a pack, and writing them straight into memory (SPEC sections "Patch", "Applying a version").
#pragma once

#include <cstddef>

#include "apply_pack.hpp"
#include "decode_run.hpp"
#include "pieces.hpp"

namespace deltastore {

// Every rule that a patch can break by itself, for the rows below `bad`'s.
void check_pack(const Table &table, const Pack &pack, DecodeRun decode, std::size_t threads, FirstBad &bad);

// Checks the whole pack, then writes it.
void apply_pack(const Pieces &pieces, const Pack &pack, DecodeRun decode, std::size_t threads, FirstBad &bad);

}  // namespace deltastore
