"""Finding what changed between two views of one chunk."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["changed_positions"]

Bits = np.ndarray[Any, Any]


def changed_positions(old: Bits, new: Bits) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Row-major positions, ascending, where two unsigned arrays of one shape and dtype differ. O(n).

    Bits are compared, so -0.0 differs from +0.0 and a NaN equals itself. n is at most 2**32.
    """
    return np.flatnonzero(old != new).astype(np.uint32)
