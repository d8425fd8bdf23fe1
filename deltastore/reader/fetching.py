"""Fetching what a reader needs of a delta's packs: all of them, or a shard's byte ranges (SPEC DS094)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from deltastore.anchors.in_order import in_order
from deltastore.anchors.together import together
from deltastore.format.pack import PackIndex, index_bytes, pack_key
from deltastore.format.records import DeltaRecord, PackRef
from deltastore.format.table import TensorTable
from deltastore.kernels.rows import Octets, chunks_of
from deltastore.reader.fetch_plan import check_slabs, plan_pack, takes_index
from deltastore.reader.needed import Needed
from deltastore.replay import checked_index, fetch_pack_index
from deltastore.stores.base import Store
from deltastore.stores.named import fetch_named, fetch_range

__all__ = ["FetchedPatches", "fetch_patches"]

_FETCHES: Final = 3
"""Packs on their way or in memory at once: a distant store answers one while another is decoded."""


@dataclass(frozen=True, slots=True)
class FetchedPatches:
    """Patches of one pack, each checked: ``index`` has their rows only, ``body`` is theirs.

    ``nbytes`` were fetched in ``requests``, for patches that are left out too.
    """

    index: PackIndex
    body: Octets
    nbytes: int
    requests: int


async def fetch_patches(
    store: Store, table: TensorTable, record: DeltaRecord, needed: Needed | None
) -> AsyncGenerator[FetchedPatches, None]:
    """What is ``needed`` of every pack in turn (None: all), checked. A few are fetched ahead, and in memory.

    Packs of slabs that nobody here needs are not touched. Raises ``CorruptError``: ``lost_object``,
    ``too_large``, ``bad_length``, ``bad_hash``, ``bad_index``.
    """

    async def fetch(pack: PackRef) -> FetchedPatches:
        if needed is not None and takes_index(pack, needed):
            return await _fetch_ranges(store, record, pack, needed)
        return await _fetch_whole(store, table, record, pack, needed)

    if needed is not None:
        check_slabs(record, needed)
    packs = [pack for pack in record.packs if needed is None or needed.some_of(pack.slabs)]
    async with aclosing(in_order(packs, fetch, ahead=_FETCHES)) as fetched:
        async for one in fetched:
            yield one


async def _fetch_whole(
    store: Store, table: TensorTable, record: DeltaRecord, pack: PackRef, needed: Needed | None
) -> FetchedPatches:
    key = pack_key(record.version, pack.sha256)
    named_by = f"version {record.version}"
    data = await fetch_named(
        store, key, nbytes=pack.bytes, sha256=pack.sha256, named_by=named_by, rule="DS061"
    )
    index = checked_index(data, record.version, pack, table)
    body = index.body(memoryview(data), table)
    if needed is not None:
        rows = np.flatnonzero(needed.entries(chunks_of(index.rows)) >= 0)
        if len(rows) < len(index.rows):
            parts = _Parts(body, index_bytes(pack.rows))
            return FetchedPatches(*_compact(index, rows, [parts]), pack.bytes, 1)
    return FetchedPatches(index, body, pack.bytes, 1)


async def _fetch_ranges(store: Store, record: DeltaRecord, pack: PackRef, needed: Needed) -> FetchedPatches:
    index = await fetch_pack_index(store, record.version, pack, needed.table)
    plan = plan_pack(pack, index, needed)
    async with together() as group:
        tasks = [group.create_task(_range(store, index, start, end)) for start, end in plan.ranges]
    parts = [
        _Parts(np.frombuffer(task.result(), np.uint8), start)
        for task, (start, _) in zip(tasks, plan.ranges, strict=True)
    ]
    await asyncio.to_thread(_check_hashes, index, plan.rows.tolist(), parts, needed.table)
    return FetchedPatches(*_compact(index, plan.rows, parts), plan.nbytes, plan.requests)


async def _range(store: Store, index: PackIndex, start: int, end: int) -> bytes:
    named_by = f"version {index.version}"
    return await fetch_range(store, index.where, start, end - start, named_by=named_by, rule="DS061")


@dataclass(frozen=True, slots=True)
class _Parts:
    """Bytes of the object from ``start`` on."""

    octets: Octets
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.octets)

    def taken(self, start: int, end: int) -> Octets:
        return self.octets[start - self.start : end - self.start]


def _part_of(parts: list[_Parts], start: int, end: int) -> Octets:
    part = next(part for part in parts if part.start <= start and end <= part.end)
    return part.taken(start, end)


def _check_hashes(index: PackIndex, rows: list[int], parts: list[_Parts], table: TensorTable) -> None:
    for row in rows:
        start, end = index.offsets[row : row + 2].tolist()
        index.check_hash(row, _part_of(parts, start, end).data, table)


def _compact(
    index: PackIndex, rows: np.ndarray[tuple[int], np.dtype[np.int64]], parts: list[_Parts]
) -> tuple[PackIndex, Octets]:
    """The index of some rows only, and their patches one after another."""
    starts, ends = index.offsets[rows], index.offsets[rows + 1]
    nbytes = int((ends - starts).sum())
    kept = replace(index, rows=index.rows[rows].copy(), body_bytes=nbytes, starts=starts)
    if len(parts) == 1 and kept.body_bytes == len(parts[0].octets):
        return kept, parts[0].octets
    body = np.empty(kept.body_bytes, np.uint8)
    breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    at = 0
    for run in np.split(np.arange(len(rows)), breaks):
        if len(run):
            for start, end in _within(int(starts[run[0]]), int(ends[run[-1]]), parts):
                taken = _part_of(parts, start, end)
                body[at : at + len(taken)] = taken
                at += len(taken)
    return kept, body


def _within(start: int, end: int, parts: list[_Parts]) -> list[tuple[int, int]]:
    """A run of bytes, cut where one part ends and the next one starts."""
    return [
        (max(start, part.start), min(end, part.end))
        for part in parts
        if part.start < end and start < part.end
    ]
