"""Some chunks of an anchor, fetched by byte ranges where that is less (SPEC section "Anchors")."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from deltastore.anchors.chunk_sums import split_sums
from deltastore.anchors.decoding import DecodedShard
from deltastore.anchors.in_order import in_order
from deltastore.anchors.inventory import fetch_object
from deltastore.anchors.opening import OpenedAnchor, open_anchor
from deltastore.anchors.portion_plan import AnchorPlan, ObjectPlan
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
from deltastore.anchors.stored_chunks import StoredChunks
from deltastore.anchors.together import together
from deltastore.format.listed import ListedObject
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


@dataclass(frozen=True)
class FetchedChunks:
    """Chunks of one object, checked."""

    stored: StoredChunks
    nbytes: int
    requests: int

    @cached_property
    def chunks(self) -> list[tuple[int, int, Bits]]:
        """(array, chunk, bits in the shape of the chunk's box) of each, read-only."""
        return list(self.stored.views())


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The wanted chunks of one shard."""

    array: int
    shard: int
    chunks: list[int]


class AnchorPortion:
    """An anchor of which some chunks are wanted. Memory: what is fetched of objects of 30 MiB, and sums."""

    def __init__(self, store: Store, table: TensorTable, opened: OpenedAnchor) -> None:
        self._store = store
        self._table = table
        self._opened = opened
        self._room = asyncio.Semaphore(_RANGES)
        self._sums: list[Sums] | None = None

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
        by_ranges = any(one.ranges is not None for one in objects)
        sums = self._opened.sums.bytes if by_ranges and self._opened.sums is not None else 0
        return AnchorPlan(self.opening_requests, self.opening_bytes, tuple(objects), sums)

    async def locate(self, array: int, chunk: int) -> tuple[str, int]:
        """The object that a chunk stands in, and its first byte there. Fetches the object's index."""
        grid = self._opened.grids[array]
        wanted = _Wanted(array, grid.holder(chunk)[0], [chunk])
        entry = self._opened.entries[f"{array_path(array)}/{grid.key(wanted.shard)}"]
        return self._opened.prefix + entry.key, int((await self._offsets(wanted, grid, entry))[0])

    async def fetch(self, chunks: ChunkList, *, ahead: int = 1) -> AsyncGenerator[FetchedChunks, None]:
        """The chunks (n,) of dtype ``CHUNK``, object by object; ``ahead`` objects are in memory at most.

        Raises ``CorruptError``: ``lost_object``, ``too_large``, ``bad_length``, ``bad_hash``, ``bad_anchor``.
        """
        async with aclosing(in_order(self._by_shard(chunks), self._fetch, ahead=ahead)) as fetched:
            async for plan, parts in fetched:
                if plan.ranges is None:
                    taken = await asyncio.to_thread(self._taken, plan, parts[0])
                    yield FetchedChunks(taken, plan.nbytes, plan.requests)
                    continue
                more = await self._fetch_sums()
                found = await asyncio.to_thread(self._checked, plan, parts)
                yield FetchedChunks(found, plan.nbytes + more, plan.requests + (more > 0))

    def _by_shard(self, chunks: ChunkList) -> Iterator[_Wanted]:
        if not len(chunks):
            return
        ordered = chunks[np.lexsort((chunks["chunk"], chunks["array"]))]
        arrays, starts = np.unique(ordered["array"], return_index=True)
        for array, mine in zip(arrays.tolist(), np.split(ordered["chunk"], starts[1:]), strict=True):
            numbers = np.unique(mine).astype(np.int64)
            holders = self._opened.grids[array].holders(numbers)
            order = np.argsort(holders, kind="stable")
            shards, firsts = np.unique(holders[order], return_index=True)
            for shard, held in zip(shards.tolist(), np.split(numbers[order], firsts[1:]), strict=True):
                yield _Wanted(array, shard, held.tolist())

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
        ranges = tuple(coalesced(starts, starts + size, gap=_GAP_BYTES))
        return replace(plan, index_bytes=shard_index_bytes(grid), offsets=offsets, ranges=ranges)

    async def _offsets(self, wanted: _Wanted, grid: ShardGrid, entry: ListedObject) -> NDArray[np.int64]:
        """Where the wanted chunks start in their object, as its index says."""
        array, where = self._table.arrays[wanted.array], self._opened.prefix + entry.key
        start = index_start(entry.bytes, grid, array, where)
        index = await self._range(entry, start, shard_index_bytes(grid))
        chunks, offsets = chunk_offsets(
            checked_index(index, start, array, where), grid, wanted.shard, array, where, end=start
        )
        return offsets[np.searchsorted(chunks, wanted.chunks)]

    async def _fetch(self, wanted: _Wanted) -> tuple[ObjectPlan, list[bytes]]:
        plan = await self._plan(wanted)
        if plan.ranges is None:
            return plan, [await fetch_object(self._store, self._opened.prefix, plan.entry)]
        async with together() as group:
            tasks = [
                group.create_task(self._range(plan.entry, start, end - start)) for start, end in plan.ranges
            ]
        return plan, [task.result() for task in tasks]

    async def _fetch_sums(self) -> int:
        """Have the sums, if the anchor has any, before the first range is looked at; bytes just fetched."""
        entry = self._opened.sums
        if entry is None or self._sums is not None:
            return 0
        data = await fetch_object(self._store, self._opened.prefix, entry)
        self._sums = split_sums(data, self._table)
        return len(data)

    def _taken(self, plan: ObjectPlan, data: bytes) -> StoredChunks:
        """Chunks of a whole object, whose hash was right."""
        grid, array = self._opened.grids[plan.array], self._table.arrays[plan.array]
        shard, _ = grid.holder(plan.chunks[0])
        held = DecodedShard(data, grid, shard, array, self._opened.prefix + plan.entry.key)
        numbers = np.array(plan.chunks, np.int64)
        parts = np.zeros(len(numbers), np.int64)
        return StoredChunks(plan.array, array, grid, numbers, [data], parts, held.offsets(numbers))

    def _checked(self, plan: ObjectPlan, parts: list[bytes]) -> StoredChunks:
        """Chunks out of ranges, each with its checksum and sum: views of ``parts``, so none is held twice."""
        grid, array = self._opened.grids[plan.array], self._table.arrays[plan.array]
        size, where = stored_chunk_bytes(grid, array.element), self._opened.prefix + plan.entry.key
        offsets = np.zeros(0, np.int64) if plan.offsets is None else plan.offsets
        firsts = np.array([start for start, _ in plan.ranges or ()], np.int64)
        sums = None if self._sums is None else self._sums[plan.array]
        held = np.searchsorted(firsts, offsets, "right") - 1
        inside = offsets - firsts[held]
        for chunk, offset, part, at in zip(
            plan.chunks, offsets.tolist(), held.tolist(), inside.tolist(), strict=True
        ):
            check_chunk(memoryview(parts[part])[at : at + size], chunk, offset, array, where, sums)
        return StoredChunks(plan.array, array, grid, np.array(plan.chunks, np.int64), parts, held, inside)

    async def _range(self, entry: ListedObject, start: int, length: int) -> bytes:
        key = self._opened.prefix + entry.key
        async with self._room:
            return await fetch_range(self._store, key, start, length, named_by="its inventory", rule="DS073")
