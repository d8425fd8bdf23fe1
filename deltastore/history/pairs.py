"""Two versions side by side, chunk by chunk: only what may differ between them is read."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deltastore.anchors.in_order import in_order
from deltastore.format.records import DeltaRecord, PackRef
from deltastore.format.table import TensorTable
from deltastore.history.lineage import Deltas, Family, Lineage
from deltastore.kernels.grid import Box
from deltastore.kernels.rows import ChunkList, chunk_list, places_of
from deltastore.layout.weights import Bits, Weights
from deltastore.replay import fetch_pack_index, read_table
from deltastore.windows.reading import WindowedWeights
from deltastore.windows.walk import Watch

__all__ = ["ByTensor", "ChunkPair", "VersionPair", "open_pair"]

_AHEAD: Final = 4
"""Indexes on their way or in memory."""

ChunkPair = tuple[int, int, Bits, Bits]
"""(array, chunk, bits in the first version, bits in the second), of the first one's table and box.

Where the second version has no such tensor, its bits are the first one's.
"""


@dataclass(frozen=True, slots=True)
class VersionPair:
    """Two versions of a lineage, ``chunks`` (n,) of dtype ``CHUNK`` of the first one's table may differ.

    ``by_patches``: what may differ follows from patches, as both grow from one anchor.
    """

    lineage: Lineage
    versions: tuple[int, int]
    tables: tuple[TensorTable, TensorTable]
    chunks: ChunkList
    by_patches: bool

    async def read(self, chunks: ChunkList) -> AsyncGenerator[ChunkPair, None]:
        """Some of ``chunks``, which ascend, at both versions. Close it.

        Memory: a window of each version. Raises ``CorruptError`` for any wrong byte.
        """
        if not len(chunks):
            return
        async with aclosing(self._grown(chunks) if self.by_patches else self._alone(chunks)) as found:
            async for pair in found:
                yield pair

    async def _grown(self, chunks: ChunkList) -> AsyncGenerator[ChunkPair, None]:
        """Both versions in one walk over what they grow from."""
        paths = [self.lineage.path(version) for version in self.versions]
        bases = dict(sorted({**paths[0].bases, **paths[1].bases}.items()))
        ends, beyond = list(self.versions), max(self.versions) + 1
        for number, version in enumerate(self.versions):
            if version in bases.values():
                # What grows from it would be written over its weights: they are kept under another number.
                ends[number] = beyond + number
        bases |= {end: version for end, version in zip(ends, self.versions, strict=True) if end >= beyond}
        deltas = Deltas(self.lineage, Family(paths[0].anchor, bases), keep=True)
        targets = {step.version: step.target or 0 for step in deltas.course.steps}
        walk = await self.lineage.walk(self.tables[0], deltas, chunks=chunks)
        try:
            for number in range(len(walk.windows)):
                buffers = await walk.over(number, Watch())
                before, after = (buffers[targets[end]].chunks for end in ends)
                for (array, chunk), bits in before.items():
                    yield array, chunk, bits, after[array, chunk]
        finally:
            walk.close()

    async def _alone(self, chunks: ChunkList) -> AsyncGenerator[ChunkPair, None]:
        """Each version in a walk of its own."""
        same = self.tables[0].sha256 == self.tables[1].sha256
        before = await self._weights(0, chunks)
        try:
            after = await self._weights(1, chunks if same else None)
            try:
                other: Weights = after if same else ByTensor(before, after)
                for array, chunk in chunks.tolist():
                    bits = await before.read(array, chunk)
                    yield array, chunk, bits, await other.read(array, chunk)
            finally:
                after.close()
        finally:
            before.close()

    async def _weights(self, number: int, chunks: ChunkList | None) -> WindowedWeights:
        deltas = Deltas(self.lineage, self.lineage.path(self.versions[number]), keep=True)
        return WindowedWeights(await self.lineage.walk(self.tables[number], deltas, chunks=chunks))


async def open_pair(lineage: Lineage, before: int, after: int) -> VersionPair:
    """Find out what may differ: fetches tables, and indexes of deltas, one after another."""
    paths = lineage.path(before), lineage.path(after)
    first = await read_table(lineage.store, lineage.known[before].table)
    second = first
    if lineage.known[after].table != first.sha256:
        second = await read_table(lineage.store, lineage.known[after].table)
    grown = paths[0].anchor == paths[1].anchor
    chunks = _every_chunk(first)
    if grown:
        own = sorted(paths[0].bases.keys() ^ paths[1].bases.keys())
        chunks = await _patched(lineage, first, own)
    return VersionPair(lineage, (before, after), (first, second), chunks, grown)


def _every_chunk(table: TensorTable) -> ChunkList:
    counts = [len(array.grid) for array in table.arrays]
    numbers = [np.zeros(0, np.int64), *map(np.arange, counts)]
    return chunk_list(np.repeat(np.arange(len(counts)), counts), np.concatenate(numbers))


async def _patched(lineage: Lineage, table: TensorTable, versions: list[int]) -> ChunkList:
    """The chunks that some of these deltas patch, ascending."""
    places = np.zeros(0, np.uint64)

    async def fetch(named: tuple[int, PackRef]) -> NDArray[np.uint64]:
        return places_of((await fetch_pack_index(lineage.store, *named, table)).rows)

    for version in versions:
        record = await lineage.record(version)
        packs = record.packs if isinstance(record, DeltaRecord) else ()
        async with aclosing(in_order(((version, pack) for pack in packs), fetch, ahead=_AHEAD)) as indexes:
            async for more in indexes:
                places = np.union1d(places, more)
    return chunk_list(places >> np.uint64(32), places & np.uint64(0xFFFFFFFF))


class ByTensor:
    """Weights under the table of ``before``: those of ``after`` where it has the tensor, else its own."""

    def __init__(self, before: Weights, after: Weights) -> None:
        self._before = before
        self._after = after

    @property
    def table(self) -> TensorTable:
        """The table of the first one."""
        return self._before.table

    async def read(self, array: int, chunk: int) -> Bits:
        """One chunk, put together of those of the other table."""
        bits = np.array(await self._before.read(array, chunk), order="C")
        mine = self.table.arrays[array]
        box = mine.grid.box(chunk)
        for offset in range(box.size[0]):
            found = self._after.table.places.get(mine.names[box.start[0] + offset])
            if found is None:
                continue
            other = self._after.table.arrays[found[0]]
            if (other.dtype, other.shape) == (mine.dtype, mine.shape):
                part = Box((found[1], *box.start[1:]), (1, *box.size[1:]))
                await self._fill(bits[offset : offset + 1], found[0], part)
        return bits

    async def _fill(self, target: Bits, array: int, box: Box) -> None:
        """Write a box of an array of the second one into ``target``, which has its shape."""
        for held, number in _overlapping(self._after.table.arrays[array].grid, box):
            bits = await self._after.read(array, number)
            inner, outer = [], []
            for low, size, start, length in zip(box.start, box.size, held.start, held.size, strict=True):
                first, last = max(low, start), min(low + size, start + length)
                inner.append(slice(first - start, last - start))
                outer.append(slice(first - low, last - low))
            target[tuple(outer)] = bits[tuple(inner)]


def _overlapping(grid: Any, box: Box) -> Iterator[tuple[Box, int]]:
    """The chunks that have some of a box, each with its own box."""
    spans = [
        range(low // step, -(-(low + size) // step))
        for low, size, step in zip(box.start, box.size, grid.chunk, strict=True)
    ]
    for place in itertools.product(*spans):
        number = 0
        for at, count in zip(place, grid.counts, strict=True):
            number = number * count + at
        yield grid.box(number), number
