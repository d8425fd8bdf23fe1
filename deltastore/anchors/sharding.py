"""How the chunks of an array are gathered into shards, the objects of an anchor (SPEC section "Anchors")."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from deltastore.format.table import Array
from deltastore.kernels.grid import Box, ChunkGrid, Indexes
from deltastore.layout.cutting import plain_chunk

__all__ = ["SHARD_BYTES", "SHARD_CHUNKS", "ShardGrid", "array_path", "plan_shards"]

SHARD_BYTES: Final = 30 << 20
"""About how many bytes of elements a shard holds: enough for an object store, not too much for memory.

Below 32 MiB, above which the C library returns freed memory to the kernel at once: with 64 MiB, encoding
spends twice the time, in page faults.
"""

SHARD_CHUNKS: Final = 1 << 14
"""Most chunks of a shard: bounds its index where chunks are tiny."""


@dataclass(frozen=True)
class ShardGrid:
    """The shards of one array: ``per_shard`` chunks along each axis, cut short at the upper edges."""

    chunks: ChunkGrid
    per_shard: tuple[int, ...]

    @cached_property
    def shards(self) -> ChunkGrid:
        """The grid of shards over the array's elements."""
        return ChunkGrid(self.chunks.extent, self.shape)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Extent of a whole shard in elements."""
        return tuple(count * step for count, step in zip(self.per_shard, self.chunks.chunk, strict=True))

    def holder(self, chunk: int) -> tuple[int, int]:
        """(shard, place in the shard's index) of a chunk: both row-major numbers."""
        at = self.chunks.coordinates(chunk)
        shard = place = 0
        for here, count, shards in zip(at, self.per_shard, self.shards.counts, strict=True):
            shard = shard * shards + here // count
            place = place * count + here % count
        return shard, place

    def holders(self, chunks: Indexes) -> Indexes:
        """The shard of each of ``chunks``, int64 (n,)."""
        found = np.zeros_like(chunks)
        for axis, (count, shards) in enumerate(zip(self.per_shard, self.shards.counts, strict=True)):
            found = found * shards + self.chunks.coordinate_along(chunks, axis) // count
        return found

    def inside(self, shard: int) -> tuple[Indexes, Indexes]:
        """The numbers of a shard's chunks, row-major within it, and their places in its index: int64 (k,)."""
        first = [at * count for at, count in zip(self.shards.coordinates(shard), self.per_shard, strict=True)]
        counts = self.chunks.counts
        sizes = [
            min(count, total - at) for at, count, total in zip(first, self.per_shard, counts, strict=True)
        ]
        chunks, places = np.zeros(1, np.int64), np.zeros(1, np.int64)
        for at, size, total, count in zip(first, sizes, counts, self.per_shard, strict=True):
            steps = np.arange(size)
            chunks = (chunks[:, None] * total + (at + steps)).reshape(-1)
            places = (places[:, None] * count + steps).reshape(-1)
        return chunks, places

    def box(self, shard: int) -> Box:
        """The elements of a shard that are inside the array."""
        return self.shards.box(shard)

    def key(self, shard: int) -> str:
        """Where a shard stands in its array: Zarr's default chunk key, such as ``c/0/3/0``."""
        return "/".join(["c", *map(str, self.shards.coordinates(shard))])

    @property
    def places(self) -> int:
        """Entries of a shard's index."""
        return math.prod(self.per_shard)


def array_path(number: int) -> str:
    """Where array ``number`` of the table stands in the group."""
    return f"array-{number:05d}"


def plan_shards(array: Array, limit: int = SHARD_BYTES) -> ShardGrid:
    """Shards of about ``limit`` bytes, full from the last axis on: row-major chunks fill them in turn."""
    chunk_bytes = math.prod(array.chunk) * array.element.itemsize
    chunks = max(1, min(limit // chunk_bytes, SHARD_CHUNKS))
    return ShardGrid(array.grid, plain_chunk(array.grid.counts, chunks))
