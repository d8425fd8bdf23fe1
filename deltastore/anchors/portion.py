"""Some chunks of an anchor, fetched by byte ranges where that is less (SPEC section "Anchors")."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from deltastore.anchors.checksums import ChecksummedForm
from deltastore.anchors.decoding import (
    DecodedShard,
    bad_shard,
    chunk_place,
    shard_index_bytes,
    stored_chunk_bytes,
)
from deltastore.anchors.in_order import in_order
from deltastore.anchors.inventory import fetch_object
from deltastore.anchors.opening import OpenedAnchor, open_anchor
from deltastore.anchors.portion_plan import AnchorPlan, ObjectPlan
from deltastore.anchors.sharding import ShardGrid, array_path
from deltastore.anchors.together import together
from deltastore.format.inventory import InventoryObject
from deltastore.format.records import AnchorRef
from deltastore.format.table import TensorTable
from deltastore.kernels.rows import ChunkList
from deltastore.layout.weights import Bits
from deltastore.stores.base import Store
from deltastore.stores.named import fetch_range
from deltastore.stores.ranges import coalesced

__all__ = ["AnchorPortion", "FetchedChunks"]

_WHOLE_SHARE: Final = 0.75
"""Where more than this part of an object's chunks is wanted, all of it is one request and one hash."""

_SMALL_BYTES: Final = 1 << 20
"""Objects up to here are fetched whole: two requests more would take longer than the bytes."""

_GAP_BYTES: Final = 256 << 10
"""Chunks this close are one range: a request to a distant store costs about what so many bytes do."""

_RANGES: Final = 8
"""Ranges on their way at once, of all objects together."""


@dataclass(frozen=True, slots=True)
class FetchedChunks:
    """Chunks of one object: (array, chunk, bits in the shape of the chunk's box), checked, read-only."""

    chunks: list[tuple[int, int, Bits]]
    nbytes: int
    requests: int


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The wanted chunks of one shard."""

    array: int
    shard: int
    chunks: list[int]


class AnchorPortion:
    """An anchor of which some chunks are wanted. Memory: what is fetched of objects of 30 MiB."""

    def __init__(self, store: Store, table: TensorTable, opened: OpenedAnchor) -> None:
        self._store = store
        self._table = table
        self._opened = opened
        self._room = asyncio.Semaphore(_RANGES)
        self._forms: dict[tuple[int, int], ChecksummedForm] = {}

    @classmethod
    async def open(cls, store: Store, version: int, ref: AnchorRef, table: TensorTable) -> Self:
        """Fetch and check the inventory and all metadata; raises what ``AnchorWeights.open`` does."""
        return cls(store, table, await open_anchor(store, version, ref, table))

    @property
    def opening_bytes(self) -> int:
        """Bytes that ``open`` fetched."""
        return self._opened.nbytes

    @property
    def opening_requests(self) -> int:
        """Requests that ``open`` made."""
        return self._opened.requests

    async def plan(self, chunks: ChunkList) -> AnchorPlan:
        """What ``fetch`` fetches of the chunks (n,) of dtype ``CHUNK``: fetches indexes, and no chunk."""
        async with aclosing(in_order(self._by_shard(chunks), self._plan, ahead=_RANGES)) as plans:
            objects = [one async for one in plans]
        return AnchorPlan(self.opening_requests, self.opening_bytes, tuple(objects))

    async def fetch(self, chunks: ChunkList, *, ahead: int = 1) -> AsyncGenerator[FetchedChunks, None]:
        """The chunks (n,) of dtype ``CHUNK``, object by object; ``ahead`` objects are in memory at most.

        Raises ``CorruptError``: ``lost_object``, ``too_large``, ``bad_length``, ``bad_hash``, ``bad_anchor``.
        """
        async with aclosing(in_order(self._by_shard(chunks), self._fetch, ahead=ahead)) as fetched:
            async for plan, parts in fetched:
                found = (
                    self._taken(plan, parts[0]) if plan.ranges is None else await self._checked(plan, parts)
                )
                yield FetchedChunks(found, plan.nbytes, plan.requests)

    def _by_shard(self, chunks: ChunkList) -> Iterator[_Wanted]:
        if not len(chunks):
            return
        ordered = chunks[np.lexsort((chunks["chunk"], chunks["array"]))]
        arrays, starts = np.unique(ordered["array"], return_index=True)
        for array, mine in zip(arrays.tolist(), np.split(ordered["chunk"], starts[1:]), strict=True):
            shards: dict[int, list[int]] = {}
            for chunk in np.unique(mine).tolist():
                shards.setdefault(self._opened.grids[array].holder(chunk)[0], []).append(chunk)
            for shard in sorted(shards):
                yield _Wanted(array, shard, shards[shard])

    async def _plan(self, wanted: _Wanted) -> ObjectPlan:
        grid, element = self._opened.grids[wanted.array], self._table.arrays[wanted.array].element
        entry = self._opened.entries[f"{array_path(wanted.array)}/{grid.key(wanted.shard)}"]
        needed = int(grid.chunks.elements(np.array(wanted.chunks)).sum()) * element.itemsize
        plan = ObjectPlan(wanted.array, wanted.chunks, entry, needed)
        extents = zip(grid.box(wanted.shard).size, grid.chunks.chunk, strict=True)
        there = math.prod(-(-extent // step) for extent, step in extents)
        if entry.bytes <= _SMALL_BYTES or len(wanted.chunks) > _WHOLE_SHARE * there:
            return plan
        offsets, size = await self._offsets(wanted, grid, entry), stored_chunk_bytes(grid, element)
        starts = np.sort(offsets)
        if bool((np.diff(starts) < size).any()):
            raise bad_shard(self._opened.prefix + entry.key, "two chunks share bytes")
        ranges = tuple(coalesced(starts, starts + size, gap=_GAP_BYTES))
        return replace(plan, index_bytes=shard_index_bytes(grid), offsets=offsets, ranges=ranges)

    async def _offsets(self, wanted: _Wanted, grid: ShardGrid, entry: InventoryObject) -> NDArray[np.int64]:
        """Where the wanted chunks start in their object, as its index says."""
        where = self._opened.prefix + entry.key
        size = stored_chunk_bytes(grid, self._table.arrays[wanted.array].element)
        index, end = await self._index(grid, entry), entry.bytes - shard_index_bytes(grid)
        places = ((chunk, grid.holder(chunk)[1]) for chunk in wanted.chunks)
        return np.array([chunk_place(index[at], size, end, chunk, where) for chunk, at in places], np.int64)

    async def _fetch(self, wanted: _Wanted) -> tuple[ObjectPlan, list[bytes]]:
        plan = await self._plan(wanted)
        if plan.ranges is None:
            return plan, [await fetch_object(self._store, self._opened.prefix, plan.entry)]
        async with together() as group:
            tasks = [
                group.create_task(self._range(plan.entry, start, end - start)) for start, end in plan.ranges
            ]
        return plan, [task.result() for task in tasks]

    def _taken(self, plan: ObjectPlan, data: bytes) -> list[tuple[int, int, Bits]]:
        """Chunks of a whole object, whose hash was right."""
        grid, element = self._opened.grids[plan.array], self._table.arrays[plan.array].element
        held = DecodedShard(data, grid, element, self._opened.prefix + plan.entry.key)
        return [(plan.array, chunk, held.chunk(chunk)) for chunk in plan.chunks]

    async def _checked(self, plan: ObjectPlan, parts: list[bytes]) -> list[tuple[int, int, Bits]]:
        """Chunks out of ranges, each with its checksum: views of ``parts``, so none is held twice."""
        grid, element = self._opened.grids[plan.array], self._table.arrays[plan.array].element
        shape, size = grid.chunks.chunk, stored_chunk_bytes(grid, element)
        count = math.prod(shape)
        form = await self._form(count, element.itemsize)
        offsets = np.zeros(0, np.int64) if plan.offsets is None else plan.offsets
        firsts = np.array([start for start, _ in plan.ranges or ()], np.int64)
        found = []
        for chunk, offset in zip(plan.chunks, offsets.tolist(), strict=True):
            held = int(np.searchsorted(firsts, offset, "right")) - 1
            part, at = parts[held], offset - int(firsts[held])
            if await form.decode(part[at : at + size]) is None:
                where = self._opened.prefix + plan.entry.key
                raise bad_shard(where, f"chunk {chunk} does not have its checksum")
            inside = tuple(slice(length) for length in grid.chunks.box(chunk).size)
            found.append(
                (plan.array, chunk, np.frombuffer(part, element.storage, count, at).reshape(shape)[inside])
            )
        return found

    async def _index(self, grid: ShardGrid, entry: InventoryObject) -> list[tuple[int, int]]:
        """(offset, length) of every place of a shard, once the index's checksum is right."""
        where = self._opened.prefix + entry.key
        start = entry.bytes - shard_index_bytes(grid)
        if start < 0:
            raise bad_shard(where, f"{entry.bytes} bytes are too few for its index")
        form = await self._form(2 * grid.places, 8)
        index = await form.decode(await self._range(entry, start, shard_index_bytes(grid)))
        if index is None:
            raise bad_shard(where, "its index does not have its checksum")
        return [(offset, length) for offset, length in index.reshape(-1, 2).tolist()]

    async def _range(self, entry: InventoryObject, start: int, length: int) -> bytes:
        key = self._opened.prefix + entry.key
        async with self._room:
            return await fetch_range(self._store, key, start, length, named_by="its inventory")

    async def _form(self, count: int, itemsize: int) -> ChecksummedForm:
        if (count, itemsize) not in self._forms:
            made = await ChecksummedForm.open(count, itemsize)
            self._forms.setdefault((count, itemsize), made)
        return self._forms[count, itemsize]
