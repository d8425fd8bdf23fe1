// Writing one patch: run headers, Elias-Fano sections, residues (SPEC section "Patch").
#pragma once

#include <cstddef>
#include <cstdint>

#include "encode_pick.hpp"
#include "encode_widths.hpp"

namespace deltastore {

inline constexpr std::size_t kWriteSlack = 64;  // bytes behind a patch that its writer may overwrite

// Writes plan.bytes bytes to `out`, where kWriteSlack more may be overwritten. The lists of `elements` are lost;
// `rest` is room for as many, needed where there are several runs.
template <typename Element>
void write_runs(ChangedElements<Element> elements, const PatchPlan &plan, std::uint64_t universe,
                ChangedElements<Element> rest, Instructions instructions, unsigned char *out);

}  // namespace deltastore
