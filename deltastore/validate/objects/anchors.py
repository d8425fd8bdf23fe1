"""The objects of an anchor: shards of any size, chunk by chunk, and all else by its hash (SPEC "Anchors")."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from deltastore.anchors.opening import OpenedAnchor
from deltastore.anchors.shard_rules import (
    Sums,
    check_chunk,
    checked_index,
    chunk_offsets,
    index_start,
    shard_index_bytes,
    stored_chunk_bytes,
)
from deltastore.anchors.sharding import ShardGrid, array_path
from deltastore.errors import CorruptError
from deltastore.format.table import Array, TensorTable
from deltastore.stores.base import Store
from deltastore.validate.objects.streamed import PIECE_BYTES, Named, StreamedObject, cut

__all__ = ["OBJECT_CHECKS", "SHARD_CHECKS", "SUMS_CHECKS", "Shard", "shards_of"]

OBJECT_CHECKS: Final = ("DS073",)
SHARD_CHECKS: Final = ("DS070", "DS071", "DS073")
SUMS_CHECKS: Final = ("DS074",)

_CHUNK_MEMORY: Final = 64
"""For each chunk of a shard: numbers, offsets, and what they are worked out with."""

_LISTED: Final = 1 << 14
"""Chunks whose places are Python's numbers at a time."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard number ``number`` of an array. ``sums`` are those of the array's chunks, if there are any."""

    array: Array
    grid: ShardGrid
    number: int
    sums: Sums | None

    def memory(self, nbytes: int) -> int:
        """Bytes that checking it takes, if it has ``nbytes``."""
        piece = max(PIECE_BYTES, stored_chunk_bytes(self.grid, self.array.element))
        inside = math.prod(self.grid.per_shard)
        return min(nbytes, piece) + shard_index_bytes(self.grid) + inside * _CHUNK_MEMORY

    async def check(self, store: Store, named: Named, *, piece: int = PIECE_BYTES) -> None:
        """Every byte of it: the hash, the index, each chunk's checksum and place. Raises ``CorruptError``."""
        read = StreamedObject(store, named, piece=piece)
        offsets = chunks = np.zeros(0, np.int64)
        try:
            start = index_start(named.nbytes, self.grid, self.array, named.key)
            index = checked_index(await read.read(start, named.nbytes), start, self.array, named.key)
            chunks, offsets = chunk_offsets(index, self.grid, self.number, self.array, named.key, end=start)
            del index
        except CorruptError as error:
            if error.code != "bad_anchor":
                raise
            read.damage = error
        else:
            if (offsets[1:] < offsets[:-1]).any():
                order = np.argsort(offsets)
                chunks, offsets = chunks[order], offsets[order]
        ends = offsets + stored_chunk_bytes(self.grid, self.array.element)
        inside = _Chunks(self, chunks, offsets, ends, named.key)
        for end in cut(0, named.nbytes, offsets, ends, piece):
            await read.advance(end, inside.look)
        await read.finish()


@dataclass(frozen=True, slots=True)
class _Chunks:
    """The chunks of a shard, in the order in which they stand in the object."""

    shard: Shard
    chunks: NDArray[np.int64]
    offsets: NDArray[np.int64]
    ends: NDArray[np.int64]
    where: str

    def look(self, data: memoryview, start: int) -> None:
        """Check the chunks of a piece."""
        shard = self.shard
        first = int(np.searchsorted(self.offsets, start))
        last = int(np.searchsorted(self.ends, start + len(data), "right"))
        for low in range(first, last, _LISTED):
            some = slice(low, min(low + _LISTED, last))
            places = zip(self.chunks[some].tolist(), self.offsets[some].tolist(), strict=True)
            for (chunk, offset), end in zip(places, self.ends[some].tolist(), strict=True):
                stored = data[offset - start : end - start]
                check_chunk(stored, chunk, offset, shard.array, self.where, shard.sums)


def shards_of(
    opened: OpenedAnchor, table: TensorTable, sums: list[Sums] | None
) -> Iterator[tuple[str, Shard]]:
    """Every shard of an anchor, with its key relative to the prefix. ``sums``: of each array, or None."""
    for number, (array, grid) in enumerate(zip(table.arrays, opened.grids, strict=True)):
        mine = None if sums is None else sums[number]
        for shard in range(len(grid.shards)):
            yield f"{array_path(number)}/{grid.key(shard)}", Shard(array, grid, shard, mine)
