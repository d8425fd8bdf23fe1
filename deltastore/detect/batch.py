"""What a process holds, cut into batches that a detector looks at one after another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from deltastore.kernels.blocks import BoxOf, block_count
from deltastore.kernels.rows import ChunkList
from deltastore.layout.batches import chunk_batches
from deltastore.layout.live_parts import HeldBox, LiveParts

__all__ = ["BATCH_ELEMENTS", "Batch", "BatchBox", "cut"]

BATCH_ELEMENTS: Final = 1 << 21
"""Enough that the fixed cost of a batch is small; new and old bits stay in the processor's cache."""


@dataclass(frozen=True, slots=True)
class BatchBox:
    """What part number ``part`` has of chunk ``chunk`` of its array, as ``box`` and, for kernels, ``of``.

    ``blocks``: the numbers of its first block and of the one after its last.
    """

    part: int
    chunk: int
    box: HeldBox
    of: BoxOf
    blocks: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Batch:
    """A few chunks in pack order, all of elements of ``itemsize`` bytes, and what is held of them."""

    chunks: ChunkList
    boxes: tuple[BatchBox, ...]
    itemsize: int

    @property
    def storage(self) -> np.dtype[Any]:
        """The little-endian unsigned type of its bits."""
        return np.dtype(f"<u{self.itemsize}")


def cut(live: LiveParts) -> tuple[tuple[Batch, ...], int]:
    """All that ``live`` holds in batches, and how many blocks that is."""
    batches = []
    blocks = 0
    for chunks, itemsize in _of_one_width(live):
        boxes = []
        for array, chunk in chunks.tolist():
            seeds = live.table.kernels.seeds(array)
            for part, box in live.under(array, chunk):
                of = BoxOf(live.table.arrays[array].shape, box.lo, box.size, int(seeds[box.member]))
                end = blocks + block_count(of.elements)
                boxes.append(BatchBox(part, chunk, box, of, (blocks, end)))
                blocks = end
        batches.append(Batch(chunks, tuple(boxes), itemsize))
    return tuple(batches), blocks


def _of_one_width(live: LiveParts) -> Iterator[tuple[ChunkList, int]]:
    """Batches of chunks, broken where the width of elements changes."""
    widths = np.array([array.element.itemsize for array in live.table.arrays], np.int64)
    chunks = live.chunks
    edges = np.flatnonzero(np.diff(widths[chunks["array"]])) + 1
    for alike in np.split(chunks, edges):
        if len(alike):
            itemsize = int(widths[alike["array"][0]])
            for some in chunk_batches(live.table, alike, BATCH_ELEMENTS * itemsize):
                yield some, itemsize
