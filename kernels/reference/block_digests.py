"""The digest of every block of a buffer (SPEC section "Digest")."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import InputError
from deltastore.kernels.blocks import Blocks
from deltastore.kernels.reference.digest import position_weights

__all__ = ["check_buffer", "digest_blocks", "weights_of"]


def digest_blocks(blocks: Blocks, bits: np.ndarray[Any, Any]) -> NDArray[np.uint64]:
    """The digest of each block's elements, uint64 ``(B,)``: each block's part of its tensor's digest.

    ``bits`` (n,): the elements of all boxes as unsigned integers of their width, C-contiguous; what comes
    after them is not looked at. Raises InputError ``wrong_memory`` for any other. O(elements).
    """
    check_buffer(blocks, bits)
    if not len(blocks):
        return np.zeros(0, np.uint64)
    factors = weights_of(blocks, np.arange(blocks.elements, dtype=np.int64))
    sums: NDArray[np.uint64] = np.add.reduceat(
        bits[: blocks.elements].astype(np.uint64) * factors, blocks.starts[:-1], dtype=np.uint64
    )
    return sums


def weights_of(blocks: Blocks, places: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The digest's weight of the elements at ``places`` (n,) of the buffer, ascending: uint64 ``(n,)``."""
    runs = blocks.runs
    of = np.searchsorted(runs["at"], places, "right") - 1
    flat = runs["flat"][of] + (places - runs["at"][of])
    factors: NDArray[np.uint64] = position_weights(flat.astype(np.uint64)) * runs["seed"][of]
    return factors


def check_buffer(blocks: Blocks, bits: np.ndarray[Any, Any]) -> None:
    """Refuses a buffer that is too short or not (n,) of unsigned integers in one piece."""
    if bits.dtype.kind != "u" or bits.ndim != 1 or not bits.flags.c_contiguous or len(bits) < blocks.elements:
        raise InputError(
            "wrong_memory",
            f"a buffer holds {blocks.elements} unsigned integers in one contiguous axis, not {bits.shape} of "
            f"{bits.dtype}",
        )
