"""The sums of an anchor's chunks: what binds each to its place, for whoever reads a part of an object.

SPEC section "Anchors". One object ``sums`` holds those of all arrays, 16 bytes each, in the order of the
table and of the chunks' numbers. An anchor may lack it.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Final

import numpy as np

from deltastore.anchors.shard_rules import SUM, Sums, chunk_offsets, index_start, stored_chunk_bytes, sum_of
from deltastore.anchors.sharding import ShardGrid
from deltastore.format.limits import SUMS_BYTES
from deltastore.format.table import TensorTable

__all__ = ["SUMS_KEY", "CollectedSums", "split_sums", "sums_bytes"]

SUMS_KEY: Final = "sums"


def sums_bytes(table: TensorTable) -> int:
    """Bytes of the object."""
    return SUM.itemsize * sum(len(array.grid) for array in table.arrays)


def split_sums(data: bytes | bytearray, table: TensorTable) -> list[Sums]:
    """The sums of each array, views of an object of the right length."""
    every = np.frombuffer(data, SUM) if data else np.zeros(0, SUM)
    ends = accumulate((len(array.grid) for array in table.arrays), initial=0)
    return [every[start:end] for start, end in pairwise(ends)]


class CollectedSums:
    """The sums of all chunks, taken from shards as they are written. Memory: the object."""

    def __init__(self, table: TensorTable) -> None:
        self._table = table
        nbytes = sums_bytes(table)
        self._wanted = 0 < nbytes <= SUMS_BYTES
        self._octets = bytearray(nbytes if self._wanted else 0)
        self._arrays = split_sums(self._octets, table) if self._wanted else []

    def add(self, number: int, grid: ShardGrid, shard: int, data: bytes) -> None:
        """Note the chunks of a shard of array ``number``, which has just been encoded."""
        if not self._wanted:
            return
        array, view = self._table.arrays[number], memoryview(data)
        start, size = index_start(len(data), grid, array, ""), stored_chunk_bytes(grid, array.element)
        chunks, offsets = chunk_offsets(view[start:], grid, shard, array, "", end=start)
        found = b"".join(sum_of(view[offset : offset + size]) for offset in offsets.tolist())
        self._arrays[number][chunks] = np.frombuffer(found, SUM)

    def object(self) -> bytes | None:
        """All of them; None for an anchor without chunks, or with more than a reader would take."""
        return bytes(self._octets) if self._wanted else None
