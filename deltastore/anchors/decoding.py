"""Taking chunks out of an encoded shard without copying it (SPEC section "Anchors").

The sha256 of the whole object was checked before, so the checksums and sums of chunks are not computed again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deltastore.anchors.shard_rules import chunk_offsets, chunk_view, index_start
from deltastore.anchors.sharding import ShardGrid
from deltastore.format.table import Array
from deltastore.layout.weights import Bits

__all__ = ["DecodedShard"]


class DecodedShard:
    """A shard whose chunks are views of the object's bytes."""

    def __init__(self, data: bytes, grid: ShardGrid, shard: int, array: Array, where: str) -> None:
        """Raise ``CorruptError("bad_anchor")`` unless each of its chunks is there, at a place of its own."""
        self._data = data
        self._grid = grid
        self._array = array
        start = index_start(len(data), grid, array, where)
        self._chunks, self._offsets = chunk_offsets(
            memoryview(data)[start:], grid, shard, array, where, end=start
        )

    def chunk(self, chunk: int) -> Bits:
        """The elements of a chunk of the shard, shape ``box.size``: a read-only view."""
        offset = int(self.offsets(np.array([chunk]))[0])
        return chunk_view(self._data, offset, chunk, self._grid, self._array)

    def offsets(self, chunks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where some chunks of the shard start, int64 (n,)."""
        return self._offsets[np.searchsorted(self._chunks, chunks)]
