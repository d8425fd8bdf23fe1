"""The digest of every block of a buffer at memory speed (SPEC section "Digest")."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.kernels.blocks import Blocks
from deltastore.kernels.cpu import _native
from deltastore.kernels.cpu.instructions import Instructions
from deltastore.kernels.reference.block_digests import check_buffer
from deltastore.kernels.threads import checked_threads

__all__ = ["digest_blocks", "run_table"]


def digest_blocks(
    blocks: Blocks,
    bits: np.ndarray[Any, Any],
    *,
    threads: int = 1,
    instructions: Instructions = Instructions.BEST,
) -> NDArray[np.uint64]:
    """The digest of each block's elements, uint64 ``(B,)``: what the reference gives, bit for bit.

    ``bits`` (n,): the elements of all boxes as unsigned integers of their width, C-contiguous; what comes
    after them is not looked at. The GIL is released, and neither ``threads`` nor ``instructions`` change the
    result. Raises InputError ``wrong_memory`` for any other buffer. O(elements).
    """
    check_buffer(blocks, bits)
    digests = np.zeros(len(blocks), np.uint64)
    _native.digest_blocks(
        blocks.starts, run_table(blocks), bits, digests, checked_threads(threads), int(instructions)
    )
    return digests


def run_table(blocks: Blocks) -> NDArray[np.int64]:
    """The runs as the compiled kernels read them: int64 ``(n, 4)``."""
    table: NDArray[np.int64] = blocks.runs.view(np.int64).reshape(-1, 4)
    return table
