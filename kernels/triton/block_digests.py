"""The digest of every block of a buffer on the device (SPEC section "Digest")."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from deltastore.errors import InputError
from deltastore.kernels.blocks import Blocks
from deltastore.kernels.triton.boxes import (
    BOX_AT,
    BOX_ELEMENTS,
    BOX_FLAT,
    BOX_SEED,
    BOX_WIDTH,
    TASK_BLOCK,
    TASK_BOX,
    TASK_PART,
    TASK_WIDTH,
    box_tables,
    lanes_of,
    run_weights,
)
from deltastore.kernels.triton.tables import ELEMENT_TYPES
from deltastore.kernels.triton.tensors import bits_of
from deltastore.kernels.triton.upload import Staged, current_device
from deltastore.kernels.triton.weights import weight_table, weights_at

__all__ = ["WARPS", "block_digests_kernel", "digest_blocks"]

BLOCK = tl.constexpr(2048)

WARPS: Final = 8


@triton.jit(do_not_specialize=["first"])
def block_digests_kernel(
    tasks: tl.tensor,
    boxes: tl.tensor,
    sides: tl.tensor,
    weights: tl.tensor,
    digests: tl.tensor,
    bits: tl.tensor,
    first: tl.tensor,
    joined: tl.constexpr,
    narrow: tl.constexpr,
) -> None:
    """The digest of one block of the buffer ``bits``; ``joined``: its tensor holds it in one piece."""
    task = tasks + (tl.program_id(0) + first) * TASK_WIDTH
    box = boxes + tl.load(task + TASK_BOX) * BOX_WIDTH
    start = tl.load(task + TASK_PART).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    inside = lane < tl.load(box + BOX_ELEMENTS) - start
    at = tl.load(box + BOX_AT) + start + lane
    values = tl.load(bits + at, mask=inside, other=0).to(narrow, bitcast=True)
    if joined:
        factors = run_weights(tl.load(box + BOX_FLAT) + start, weights)
    else:
        places, _, _, _ = lanes_of(box, sides, start)
        factors = weights_at(places, weights, inside)
    seed = tl.load(box + BOX_SEED).to(tl.uint64, bitcast=True)
    total = tl.sum(values.to(tl.uint64) * factors, 0) * seed
    tl.store(digests + tl.load(task + TASK_BLOCK), total.to(tl.int64, bitcast=True))


def digest_blocks(blocks: Blocks, bits: torch.Tensor) -> NDArray[np.uint64]:
    """The digest of each block's elements, uint64 ``(B,)``: each block's part of its tensor's digest.

    ``bits`` (n,): the elements of all boxes as integers of their width, contiguous (``bits_of`` gives them);
    what comes after them is not looked at. On the current stream, which it waits for. O(elements).

    Raises InputError ``wrong_memory`` for any other.
    """
    whole = not bits.dtype.is_floating_point and not bits.dtype.is_complex and bits.ndim == 1
    if not whole or not bits.is_contiguous() or len(bits) < blocks.elements:
        raise InputError(
            "wrong_memory",
            f"a buffer holds {blocks.elements} integers in one contiguous axis, not {tuple(bits.shape)} of "
            f"{bits.dtype}",
        )
    if not len(blocks):
        return np.zeros(0, np.uint64)
    tables = box_tables(blocks, [()] * len(blocks.boxes), [0] * len(blocks.boxes))
    joined = tables.joined[tables.tasks[:, 0]]
    order = np.argsort(~joined, kind="stable")
    narrow: Any = ELEMENT_TYPES[bits.itemsize][0]
    with current_device(bits.device):
        staged = Staged(bits.device, [tables.tasks[order], tables.boxes, tables.sides, weight_table()])
        fixed = staged.start()
        digests = torch.empty(len(blocks), dtype=torch.int64, device=bits.device)
        split = int(joined.sum())
        for first, count in ((0, split), (split, len(joined) - split)):
            if count:
                block_digests_kernel[(count,)](
                    *fixed,
                    digests,
                    bits_of(bits),
                    first,
                    joined=first < split,
                    narrow=narrow,
                    num_warps=WARPS,
                )
    return digests.cpu().numpy().view(np.uint64)
