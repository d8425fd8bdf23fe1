"""How fast this machine reads memory: what the other kernels are measured against."""

from __future__ import annotations

from typing import Any

import numpy as np

from deltastore.errors import InputError
from deltastore.kernels.cpu import _native
from deltastore.kernels.threads import checked_threads

__all__ = ["read_both"]

Bits = np.ndarray[Any, Any]


def read_both(first: Bits, second: Bits, *, threads: int = 1) -> int:
    """Read every element of two contiguous arrays of equally many bytes; a sum of what was read.

    Does nothing else, so that its time is the least that a kernel over both could take. Whole cache lines of
    64 bytes only. Raises InputError: ``wrong_memory`` for arrays that are not contiguous, ``wrong_shape`` for
    unequal ones.
    """
    if not (first.flags.c_contiguous and second.flags.c_contiguous):
        raise InputError("wrong_memory", "the read ceiling takes contiguous arrays; give copies")
    if first.nbytes != second.nbytes:
        sizes = f"{first.nbytes} and {second.nbytes} bytes"
        raise InputError("wrong_shape", f"the read ceiling takes arrays of one size, not of {sizes}")
    return _native.read_both(_octets(first), _octets(second), checked_threads(threads))


def _octets(array: Bits) -> Bits:
    return array.reshape(-1).view(np.uint8)
