// Ordered integers (SPEC section "Ordered integers"); the map is its own inverse.
#pragma once

#include <limits>
#include <type_traits>

namespace deltastore {

template <typename Element>
inline Element ordered(Element bits, bool floating) {
    static_assert(std::is_unsigned<Element>::value, "bits are unsigned");
    constexpr int top = std::numeric_limits<Element>::digits - 1;
    const Element sign = static_cast<Element>(bits >> top);
    const Element fold = static_cast<Element>(static_cast<Element>(0) - sign);
    return floating ? static_cast<Element>(bits ^ static_cast<Element>(fold >> 1)) : bits;
}

}  // namespace deltastore
