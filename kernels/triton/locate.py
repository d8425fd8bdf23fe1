"""Inside kernels: from positions in a chunk to memory and to flat indexes in the tensor."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from deltastore.kernels.triton.tables import (
    AXIS_EXTENT,
    AXIS_FLAT,
    AXIS_LOW,
    AXIS_SIZE,
    AXIS_STRIDE,
    AXIS_WIDTH,
    WINDOW_AXES,
    WINDOW_FIRST_AXIS,
    WINDOW_HIGH,
    WINDOW_LOW,
)

__all__ = ["locate", "may_meet"]


@triton.jit
def may_meet(window: tl.tensor, lowest: tl.tensor, highest: tl.tensor) -> Any:
    """Whether a window may hold one of the positions ``lowest .. highest``."""
    return (tl.load(window + WINDOW_LOW) <= highest) & (tl.load(window + WINDOW_HIGH) >= lowest)


@triton.jit
def locate(positions: tl.tensor, valid: tl.tensor, window: tl.tensor, axes: tl.tensor) -> Any:
    """(inside, offset, flat): whether a window holds each position (int32), its distance from the window's
    address in bytes, and from the window's flat index. A position that is not inside has any offset.
    """
    inside = (
        valid & (positions >= tl.load(window + WINDOW_LOW)) & (positions <= tl.load(window + WINDOW_HIGH))
    )
    entry = axes + tl.load(window + WINDOW_FIRST_AXIS) * AXIS_WIDTH
    left = tl.load(window + WINDOW_AXES).to(tl.int32)
    rest = positions
    offset = positions.to(tl.int64) * 0
    flat = offset
    while left > 0:
        here = rest
        if left > 1:
            extent = tl.load(entry + AXIS_EXTENT).to(tl.int32)
            rest = here // extent
            here = here - rest * extent
        here -= tl.load(entry + AXIS_LOW).to(tl.int32)
        inside = inside & (here >= 0) & (here < tl.load(entry + AXIS_SIZE).to(tl.int32))
        offset += here.to(tl.int64) * tl.load(entry + AXIS_STRIDE)
        flat += here.to(tl.int64) * tl.load(entry + AXIS_FLAT)
        entry += AXIS_WIDTH
        left -= 1
    return inside, offset, flat
