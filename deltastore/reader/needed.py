"""Which chunks of a stream a reader holds elements of, and so which patches it needs."""

from __future__ import annotations

from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from deltastore.format.table import TensorTable
from deltastore.kernels.rows import ChunkList, places_of
from deltastore.layout.pieces import Layout
from deltastore.layout.shard_boxes import ShardBoxes

__all__ = ["Needed"]


class Needed:
    """Chunks in pack order, (n,) of dtype ``CHUNK``, and of each whether all of its elements are held."""

    def __init__(self, table: TensorTable, chunks: ChunkList, whole: NDArray[np.bool_]) -> None:
        self.table = table
        self.chunks = chunks
        self.whole = whole
        places = places_of(chunks)
        self._order = np.argsort(places, kind="stable")
        self._places = places[self._order]

    @classmethod
    def of(cls, table: TensorTable, layout: Layout) -> Self:
        """What a process with ``layout`` needs; raises what ``ShardBoxes`` does."""
        return cls.by(ShardBoxes(table, layout))

    @classmethod
    def by(cls, boxes: ShardBoxes) -> Self:
        """What a process that holds ``boxes`` needs."""
        return cls(boxes.table, boxes.chunks, boxes.whole)

    def __len__(self) -> int:
        return len(self.chunks)

    @cached_property
    def everything(self) -> bool:
        """Whether all elements of the table are held."""
        return bool(self.whole.all()) and len(self) == sum(len(array.grid) for array in self.table.arrays)

    def entries(self, chunks: ChunkList) -> NDArray[np.int64]:
        """Where each of (n,) chunks stands in ``self.chunks``; -1 for one that is not needed."""
        if not len(self):
            return np.full(len(chunks), -1, np.int64)
        wanted = places_of(chunks)
        found = np.minimum(np.searchsorted(self._places, wanted), len(self) - 1)
        return np.where(self._places[found] == wanted, self._order[found], -1).astype(np.int64)

    def some_of(self, slabs: tuple[int, int]) -> bool:
        """Whether any chunk of the slabs from first to last is needed."""
        return self._count(self._in_slabs[0], slabs) > 0

    def all_of(self, slabs: tuple[int, int]) -> bool:
        """Whether every chunk of the slabs from first to last is needed."""
        needed, there = self._in_slabs
        return self._count(needed, slabs) == self._count(there, slabs)

    @cached_property
    def _in_slabs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many chunks of all slabs before each are needed, and how many there are."""
        slabs = self.table.slabs + 1
        held = self.table.slabs_of(self.chunks) if len(self) else np.zeros(0, np.int64)
        needed = np.bincount(held, minlength=slabs)
        there = np.bincount(self.table.chunk_order()[:, 0], minlength=slabs)
        zero = np.zeros(1, np.int64)
        return np.concatenate([zero, needed.cumsum()]), np.concatenate([zero, there.cumsum()])

    @staticmethod
    def _count(before: NDArray[np.int64], slabs: tuple[int, int]) -> int:
        first, last = (min(max(slab, 0), len(before) - 2) for slab in slabs)
        return int(before[last + 1] - before[first])
