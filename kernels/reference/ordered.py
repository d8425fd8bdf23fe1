"""Ordered-integer space (SPEC section "Ordered integers").

Floating-point bits are sign and magnitude; folding the negative half turns "the next representable value"
into "+1". The map is its own inverse:

    o(u) = u ^ (2**(W-1) - 1)   where the sign bit of u is set,   o(u) = u elsewhere

read as a two's-complement integer of W bits. -0.0 becomes -1, next to +0.0, and every NaN payload keeps a
place of its own. All arithmetic here is modulo 2**W on unsigned arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["ordered", "signed_step", "step_magnitude"]

Bits = np.ndarray[Any, Any]


def ordered(bits: Bits, *, floating: bool) -> Bits:
    """Bits (unsigned, any shape) -> ordered integers as unsigned patterns, same dtype. O(n), a new array."""
    if not floating:
        return bits.copy()
    width = bits.dtype.itemsize * 8
    sign = bits >> bits.dtype.type(width - 1)
    fold = np.zeros_like(bits) - sign
    result: Bits = bits ^ (fold >> bits.dtype.type(1))
    return result


def signed_step(old: Bits, new: Bits) -> Bits:
    """``new - old`` modulo 2**W, of two ordered arrays, read as signed integers of W bits."""
    step: Bits = (new - old).view(f"<i{old.dtype.itemsize}")
    return step


def step_magnitude(step: Bits) -> Bits:
    """|step| as an unsigned array; -2**(W-1) gives 2**(W-1)."""
    unsigned = step.view(f"<u{step.dtype.itemsize}")
    magnitude: Bits = np.where(step < 0, np.zeros_like(unsigned) - unsigned, unsigned)
    return magnitude
