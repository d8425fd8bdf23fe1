"""Comparing two weights chunk by chunk: a checkpoint with a version, or live weights with a snapshot."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np

from deltastore.detect.changes import ChunkChange
from deltastore.kernels.reference.changed import changed_positions
from deltastore.layout.weights import Weights

__all__ = ["Difference", "compare"]


async def compare(new: Weights, old: Weights) -> AsyncIterator[ChunkChange]:
    """Every chunk that differs, in pack order. One chunk of each is in memory at a time.

    Every chunk of ``new`` is read exactly once, into memory of its own: weights that move meanwhile make a
    version that mixes two moments, but never one that contradicts itself.
    """
    table = new.table
    for slab, array, chunk in table.chunk_order().tolist():
        after = np.array(await new.read(array, chunk), order="C")
        before = await old.read(array, chunk)
        positions = changed_positions(before, after)
        if len(positions):
            yield ChunkChange(
                slab=slab,
                array=array,
                chunk=chunk,
                box=table.arrays[array].grid.box(chunk),
                positions=positions,
                old=np.ascontiguousarray(before).reshape(-1)[positions],
                new=after.reshape(-1)[positions],
                whole=after,
            )


class Difference:
    """Detects by comparing ``new`` with ``old``, each read once. It is spent after one version."""

    name = "difference"

    def __init__(self, new: Weights, old: Weights) -> None:
        self._new = new
        self._old = old

    def changes(self) -> AsyncIterator[ChunkChange]:
        """Every chunk that differs, in pack order."""
        return compare(self._new, self._old)

    def committed(self) -> None:
        """Nothing to remember."""

    def aborted(self) -> None:
        """Nothing to take back."""
