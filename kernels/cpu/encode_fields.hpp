// Fixed-width bit fields one after another (SPEC section "Patch").
#pragma once

#include <cstddef>
#include <cstdint>

#include "instructions.hpp"

namespace deltastore {

// Writes the low `width` bits of each value, width being 0 to the bits of Value, and returns the section's end.
// It may be followed by garbage up to kWriteSlack bytes; unused bits of its last word are zero.
template <typename Value>
using PackFields = unsigned char *(*)(const Value *values, std::size_t count, int width, unsigned char *out);

template <typename Value>
PackFields<Value> pack_fields_for(Instructions instructions);

}  // namespace deltastore
