// The high section of Elias-Fano positions (SPEC section "Patch").
#pragma once

#include <cstddef>
#include <cstdint>

#include "instructions.hpp"

namespace deltastore {

// Position i sets bit (p_i >> low) + i of the section; `out` is cleared for all of it. Clear bytes may be written
// up to 7 bytes behind the byte of the last position.
using WriteHigh = void (*)(const std::uint32_t *positions, std::size_t count, int low, unsigned char *out);

WriteHigh write_high_for(Instructions instructions);

}  // namespace deltastore
