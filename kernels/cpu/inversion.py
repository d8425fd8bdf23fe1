"""The inversion of an AdamW step at memory speed, block by block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deltastore.kernels.blocks import Blocks
from deltastore.kernels.cpu import _native
from deltastore.kernels.cpu.block_digests import run_table
from deltastore.kernels.cpu.instructions import Instructions
from deltastore.kernels.inversion import RULE, Inverted, Span, check_inversion
from deltastore.kernels.threads import checked_threads

__all__ = ["invert", "line_table"]

_FIELDS: Final = 9
_ITEM: Final = 4
_COEFFICIENTS: Final = RULE.itemsize // 4


def invert(
    blocks: Blocks,
    spans: Sequence[Span],
    rules: np.ndarray[Any, Any],
    wanted: NDArray[np.uint64],
    new: NDArray[np.uint16],
    old: NDArray[np.uint16],
    *,
    threads: int = 1,
    instructions: Instructions = Instructions.BEST,
) -> Inverted:
    """Fill ``new`` and ``old`` (n,) with the bits of all boxes now and before the step.

    ``spans``: one for each box of ``blocks``; ``rules`` (r,) of dtype ``RULE``; ``wanted`` (B,): the digest
    of what each block held before. Where the outcome is UNEXPLAINED, ``old`` is what the inversion says.
    A block of at most 8 uncertain elements is settled by trying all their candidates. Every result is the
    reference's, bit for bit, whatever ``threads`` and ``instructions`` are and whether or not the thread
    flushes denormals; the GIL is released. Elements that do not stand side by side are copied, a block at a
    time.

    Raises InputError for arguments that contradict each other. O(elements); memory: 72 bytes for each span,
    or for each of its rows where its memory has gaps between them.
    """
    check_inversion(blocks, spans, rules, wanted, new, old)
    count = len(blocks)
    found = Inverted(np.zeros(count, np.uint64), np.zeros(count, np.uint8), np.zeros(count, np.uint16))
    _native.invert(
        blocks.starts,
        line_table(blocks, spans),
        run_table(blocks),
        np.ascontiguousarray(rules).view("<f4").reshape(-1, _COEFFICIENTS),
        np.ascontiguousarray(wanted),
        new,
        old,
        found.digests,
        found.outcomes,
        found.uncertain,
        checked_threads(threads),
        int(instructions),
    )
    return found


def line_table(blocks: Blocks, spans: Sequence[Span]) -> NDArray[np.int64]:
    """Where the buffer's elements stand in memory: int64 ``(n, 9)``, in its order.

    A line is (place in the buffer, count, rule, addresses of master, mean and square, their steps in bytes).
    """
    parts: list[Any] = []
    near: list[tuple[int, ...]] = []
    for span, at, end in zip(spans, blocks.first[:-1].tolist(), blocks.first[1:].tolist(), strict=True):
        master, mean, square = span.master, span.mean, span.square
        if master.flags.c_contiguous and mean.flags.c_contiguous and square.flags.c_contiguous:
            places = (_address(master), _address(mean), _address(square))
            near.append((at, end - at, span.rule, *places, _ITEM, _ITEM, _ITEM))
        else:
            parts += [near, _lines_of(span, at)]
            near = []
    parts.append(near)
    return np.concatenate([np.array(part, np.int64).reshape(-1, _FIELDS) for part in parts])


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _lines_of(span: Span, at: int) -> NDArray[np.int64]:
    """One line for each row, or fewer where rows join in all three arrays."""
    views = (span.master, span.mean, span.square)
    axes = [axis for axis, size in enumerate(span.master.shape) if size > 1]
    sizes = [span.master.shape[axis] for axis in axes]
    steps = [tuple(view.strides[axis] for view in views) for axis in axes]
    count, step = (sizes.pop(), steps.pop()) if axes else (1, (_ITEM,) * 3)
    while sizes and steps[-1] == tuple(count * each for each in step):
        count *= sizes.pop()
        steps.pop()
    addresses = np.array([[_address(view) for view in views]], np.int64)
    for size, outer in zip(sizes, steps, strict=True):
        moves = np.arange(size, dtype=np.int64)[:, None] * np.array(outer, np.int64)
        addresses = (addresses[:, None] + moves).reshape(-1, 3)
    lines = np.empty((len(addresses), _FIELDS), np.int64)
    lines[:, 0] = at + np.arange(len(lines), dtype=np.int64) * count
    lines[:, 1], lines[:, 2], lines[:, 3:6], lines[:, 6:] = count, span.rule, addresses, step
    return lines
