"""Many chunks for one call of a kernel: few enough that they can be in memory together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from deltastore.format.table import TensorTable
from deltastore.kernels.rows import ChunkList, chunk_list

__all__ = ["HELD_BYTES", "READ_BYTES", "SPARSE_BYTES", "Batches", "chunk_batches", "chunks_in_order"]

HELD_BYTES: Final = 8 << 20
"""Of weights that stand in memory anyway. What a call makes of them is at worst as large, and there twice for
a moment; a call costs what reading some per cent of this does."""

SPARSE_BYTES: Final = 32 << 20
"""The same, where the calls before have made little."""

_LITTLE: Final = 8
"""A batch has become little when that is less than this part of it."""

READ_BYTES: Final = 4 << 20
"""Of weights that are read into memory for the call: reading them takes far longer than the call does."""


def chunks_in_order(table: TensorTable) -> ChunkList:
    """Every chunk of the table in pack order: ``(n,)`` of dtype ``CHUNK``."""
    order = table.chunk_order()
    return chunk_list(order[:, 1], order[:, 2])


def chunk_batches(table: TensorTable, chunks: ChunkList, nbytes: int) -> Iterator[ChunkList]:
    """``chunks`` (n,) in their order, in batches of about ``nbytes`` of elements."""
    return iter(Batches(table, chunks, nbytes, nbytes))


class Batches:
    """``chunks`` (n,) in their order, in batches whose size follows what the last ones became.

    A batch has about ``least`` bytes of elements; after one of which little was ``made``, twice as many as it
    had, up to ``most``. So a call's fixed cost is small where little changes, and its result where much does.
    """

    def __init__(self, table: TensorTable, chunks: ChunkList, least: int, most: int) -> None:
        sizes = np.zeros(len(chunks), np.int64)
        for number, array in enumerate(table.arrays):
            mine = chunks["array"] == number
            sizes[mine] = array.grid.elements(chunks["chunk"][mine]) * array.element.itemsize
        self._chunks = chunks
        self._ends = np.cumsum(sizes)
        self._least = least
        self._most = most
        self._size = least

    def made(self, nbytes: int) -> None:
        """The last batch became ``nbytes``."""
        self._size = min(2 * self._size, self._most) if nbytes * _LITTLE < self._size else self._least

    def __iter__(self) -> Iterator[ChunkList]:
        start = 0
        while start < len(self._chunks):
            before = int(self._ends[start - 1]) if start else 0
            end = max(int(np.searchsorted(self._ends, before + self._size, "right")), start + 1)
            yield self._chunks[start:end]
            start = end
