"""Elements laid out box after box, and cut into blocks of 2048: what a certificate keeps a digest of.

A detector brings the elements that it looks at into one flat buffer, box after box, each row-major. A
*block* is at most 2048 elements of one box, in that order. A box never spans two chunks, so what is known of
a block's digest is known of its chunk.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import InputError

__all__ = ["BLOCK", "RUN", "Blocks", "BoxOf", "block_count"]

BLOCK: Final = 2048
"""Elements of a block, but for the last of a box."""

RUN: Final = np.dtype([("at", "<i8"), ("flat", "<i8"), ("count", "<i8"), ("seed", "<u8")])
"""Elements that stand one after another in the buffer, from ``at`` on, and in their tensor, from flat index
``flat`` on. ``seed``: the tensor's digest seed."""


def block_count(elements: int) -> int:
    """Blocks of a box of so many elements."""
    return -(-elements // BLOCK)


@dataclass(frozen=True, slots=True)
class BoxOf:
    """The box of ``size`` elements from ``lo`` on, of a tensor of shape ``shape`` with digest seed ``seed``.

    Raises InputError ``bad_argument`` for a box that is empty or not inside its tensor, and for an even seed.
    """

    shape: tuple[int, ...]
    lo: tuple[int, ...]
    size: tuple[int, ...]
    seed: int

    def __post_init__(self) -> None:
        inside = len(self.shape) == len(self.lo) == len(self.size) and all(
            first >= 0 < length <= whole - first
            for whole, first, length in zip(self.shape, self.lo, self.size, strict=True)
        )
        if not inside or self.seed % 2 == 0 or not 0 < self.seed < 1 << 64:
            raise InputError(
                "bad_argument",
                f"box {list(self.size)} from {list(self.lo)} is not inside a tensor of shape "
                f"{list(self.shape)}, or seed {self.seed} is not odd",
            )

    @property
    def elements(self) -> int:
        """How many."""
        return math.prod(self.size)


class Blocks:
    """Boxes one after another in a buffer of ``elements`` elements, and their blocks.

    ``starts`` (B + 1,) int64: where each block starts in the buffer, and where the last one ends.
    """

    def __init__(self, boxes: Sequence[BoxOf]) -> None:
        self.boxes = tuple(boxes)
        sizes = np.array([box.elements for box in self.boxes], np.int64)
        self.first = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        """Where each box starts in the buffer, and where the last one ends: int64 ``(boxes + 1,)``."""
        counts = -(-sizes // BLOCK)
        self.first_block = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        """The number of each box's first block, and the count of all: int64 ``(boxes + 1,)``."""

    def __len__(self) -> int:
        return int(self.first_block[-1])

    @property
    def elements(self) -> int:
        """Elements of all boxes."""
        return int(self.first[-1])

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each block starts in the buffer, and where the last one ends: int64 ``(B + 1,)``."""
        counts = np.diff(self.first_block)
        within = np.arange(len(self), dtype=np.int64) - np.repeat(self.first_block[:-1], counts)
        starts = np.repeat(self.first[:-1], counts) + within * BLOCK
        return np.concatenate([starts, self.first[-1:]])

    @cached_property
    def runs(self) -> np.ndarray[Any, Any]:
        """The boxes as runs, in the order of the buffer: ``(n,)`` of dtype ``RUN``."""
        parts: list[Any] = []
        single: list[tuple[int, int, int, int]] = []
        for box, at in zip(self.boxes, self.first.tolist(), strict=False):
            outer, count, start = _joined(box)
            if outer:
                parts += [_runs(single), _rows(box, at, outer, count, start)]
                single = []
            else:
                single.append((at, start, count, box.seed))
        return np.concatenate([*parts, _runs(single)])


def _runs(tuples: Sequence[tuple[int, int, int, int]]) -> np.ndarray[Any, Any]:
    """As an array; no field is negative, and to make a structured array takes four times as long."""
    return np.array(tuples, np.uint64).reshape(-1, 4).view(RUN)[:, 0]


def _joined(box: BoxOf) -> tuple[int, int, int]:
    """How many of the first axes are left where rows join, the elements of a run, and where the first starts.

    That is the part of its flat index that the joined axes make.
    """
    outer, count, start, stride = len(box.size), 1, 0, 1
    while outer:
        outer -= 1
        count *= box.size[outer]
        start += box.lo[outer] * stride
        stride *= box.shape[outer]
        if box.size[outer] != box.shape[outer]:
            break
    return outer, count, start


def _rows(box: BoxOf, at: int, outer: int, count: int, start: int) -> np.ndarray[Any, Any]:
    """One run for each place along the first ``outer`` axes."""
    flat = np.full((1,) * outer, start, np.int64)
    stride = math.prod(box.shape[outer:])
    for axis in range(outer - 1, -1, -1):
        steps = (np.arange(box.size[axis], dtype=np.int64) + box.lo[axis]) * stride
        flat = flat + steps.reshape((-1,) + (1,) * (outer - 1 - axis))
        stride *= box.shape[axis]
    runs = np.zeros(flat.size, RUN)
    runs["at"] = at + np.arange(flat.size, dtype=np.int64) * count
    runs["flat"], runs["count"], runs["seed"] = flat.ravel(), count, np.uint64(box.seed)
    return runs
