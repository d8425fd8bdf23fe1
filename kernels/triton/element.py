"""Inside kernels: an element's memory, ordered integers and residues (SPEC section "Patch").

``narrow`` is the element's type in memory, ``wide`` the one to calculate in (uint32, or uint64 for 64 bits),
``bits`` its width W.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

__all__ = ["fold_of", "ordered", "pointers", "resolved"]


@triton.jit
def pointers(base: tl.tensor, offsets: tl.tensor, narrow: tl.constexpr) -> Any:
    """Pointers to elements ``offsets`` bytes from the address ``base``, both int64."""
    return (base + offsets).to(tl.pointer_type(narrow))


@triton.jit
def fold_of(floating: tl.tensor, bits: tl.constexpr, wide: tl.constexpr) -> Any:
    """What to flip where the sign bit is set: all bits below it for a float, none for others."""
    return floating.to(wide) * ((1 << (bits - 1)) - 1)


@triton.jit
def ordered(values: tl.tensor, fold: tl.tensor, bits: tl.constexpr) -> Any:
    """Bits to ordered integers and back."""
    return values ^ ((values >> (bits - 1)) * fold)


@triton.jit
def resolved(
    current: tl.tensor,
    residues: tl.tensor,
    fold: tl.tensor,
    width: tl.tensor,
    bits: tl.constexpr,
    wide: tl.constexpr,
) -> Any:
    """New bits, and where the offset is -2**(w-1), which is never encoded."""
    spare: tl.constexpr = (64 if bits == 64 else 32) - bits
    at = ordered(current, fold, bits)
    one = tl.full((1,), 1, wide)
    half = one << (width - 1).to(wide)
    field = (residues - at) & (half - 1 + half)
    misfit = (field == half) & (width < bits)
    moved = at + field - ((field & half) << 1)
    full = (tl.full((1,), 0, wide) - 1) >> spare
    return ordered(moved & full, fold, bits), misfit
