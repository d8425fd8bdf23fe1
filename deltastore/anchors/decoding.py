"""Taking chunks out of an encoded shard without copying it (SPEC section "Anchors").

A shard is its chunks, each followed by a CRC-32C of 4 bytes, then an index of (offset, length) pairs of
64-bit integers, row-major over the shard's chunks, then the index's CRC-32C. The sha256 of the whole object
was checked before, so the checksums inside it are not computed again.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from deltastore.anchors.sharding import ShardGrid
from deltastore.errors import CorruptError
from deltastore.format.dtypes import Dtype
from deltastore.layout.weights import Bits

__all__ = ["CHECKSUM_BYTES", "ENTRY_BYTES", "DecodedShard", "bad_shard", "chunk_place", "most_bytes"]

CHECKSUM_BYTES: Final = 4
ENTRY_BYTES: Final = 16
_ABSENT: Final = (1 << 64) - 1


def most_bytes(grid: ShardGrid, element: Dtype) -> int:
    """Bytes of a shard that holds all its chunks: no shard is longer."""
    return grid.places * stored_chunk_bytes(grid, element) + shard_index_bytes(grid)


def stored_chunk_bytes(grid: ShardGrid, element: Dtype) -> int:
    """Bytes of a chunk in a shard, with its checksum."""
    return math.prod(grid.chunks.chunk) * element.itemsize + CHECKSUM_BYTES


def shard_index_bytes(grid: ShardGrid) -> int:
    """Bytes of a shard's index, with its checksum: the last ones of the object."""
    return grid.places * ENTRY_BYTES + CHECKSUM_BYTES


class DecodedShard:
    """A shard whose chunks are views of the object's bytes, checked when they are taken."""

    def __init__(self, data: bytes, grid: ShardGrid, element: Dtype, where: str) -> None:
        """Raise ``CorruptError("bad_anchor")`` for an object too short for its index."""
        self._data = data
        self._grid = grid
        self._element = element
        self._where = where
        self._end = len(data) - shard_index_bytes(grid)
        if self._end < 0:
            raise bad_shard(where, f"{len(data)} bytes are too few for its index")

    def chunk(self, chunk: int) -> Bits:
        """The elements of a chunk, shape ``box.size``: a read-only view.

        Raises ``CorruptError("bad_anchor")`` for a chunk that is left out or not inside the object.
        """
        shape = self._grid.chunks.chunk
        count = math.prod(shape)
        offset = self._offset(chunk, count * self._element.itemsize + CHECKSUM_BYTES)
        whole = np.frombuffer(self._data, self._element.storage, count, offset).reshape(shape)
        return whole[tuple(slice(size) for size in self._grid.chunks.box(chunk).size)]

    def _offset(self, chunk: int, wanted: int) -> int:
        _, place = self._grid.holder(chunk)
        entry = np.frombuffer(self._data, "<u8", 2, self._end + place * ENTRY_BYTES)
        offset, length = entry.tolist()
        return chunk_place((offset, length), wanted, self._end, chunk, self._where)


def chunk_place(entry: tuple[int, int], wanted: int, end: int, chunk: int, where: str) -> int:
    """Where a chunk of ``wanted`` bytes, its checksum included, starts in a shard whose index is at ``end``.

    ``entry``: (offset, length) as the index has it. Raises ``CorruptError("bad_anchor")`` for a chunk that is
    left out or not inside the object.
    """
    offset, length = entry
    if offset == length == _ABSENT:
        raise bad_shard(where, f"chunk {chunk} is left out; whoever wrote it must store chunks of zeros too")
    if length != wanted or offset + length > end:
        raise bad_shard(where, f"chunk {chunk} is not {wanted} bytes inside the object")
    return offset


def bad_shard(where: str, problem: str) -> CorruptError:
    """The error for an object that is not what the anchor says."""
    message = f"{where} is not a shard of this anchor: {problem}; take another version"
    return CorruptError("bad_anchor", message, where=where)
