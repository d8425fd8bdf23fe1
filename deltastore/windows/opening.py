"""Opening a walk: the anchor's metadata and the indexes of all deltas, each fetched once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Protocol

from deltastore.anchors.in_order import in_order
from deltastore.anchors.opening import open_anchor
from deltastore.anchors.portion import AnchorPortion
from deltastore.errors import CorruptError
from deltastore.format.pack import PackIndex, index_bytes
from deltastore.format.records import AnchorRecord, DeltaRecord, PackRef
from deltastore.format.table import TensorTable
from deltastore.kernels.rows import ChunkList
from deltastore.replay import fetch_pack_index
from deltastore.stores.base import Store
from deltastore.windows.ahead import by_weight
from deltastore.windows.course import Course
from deltastore.windows.cutting import windows_of
from deltastore.windows.names import PackNames
from deltastore.windows.rows import RowFile
from deltastore.windows.sharing import Sharing
from deltastore.windows.walk import Walk

__all__ = ["WINDOW_BYTES", "Deltas", "open_walk", "window_bytes"]

WINDOW_BYTES: Final = 32 << 20
"""Most weights of a window: a shard of an anchor as this package writes them fits."""

_WEIGHTS_BYTES: Final = 64 << 20
"""Of all windows side by side and all buffers of each, unless a chunk is so large."""

_INDEXES_BYTES: Final = 8 << 20
_AHEAD: Final = 8
"""Records and indexes on their way, and what the indexes weigh together."""


def window_bytes(course: Course, jobs: int) -> int:
    """How much a window may hold where ``jobs`` of them are walked side by side."""
    return max(min(WINDOW_BYTES, _WEIGHTS_BYTES // (jobs * course.buffers)), 1)


class Deltas(Protocol):
    """Where the deltas of a course come from, and who is told of their indexes."""

    async def record(self, step: int) -> DeltaRecord | None:
        """The manifest of a step; None leaves the step out."""
        ...

    def indexed(self, step: int, index: PackIndex) -> None:
        """The index of one of its packs, which keeps all rules."""
        ...

    def lost(self, step: int, error: CorruptError) -> None:
        """A pack whose index is not what it must be; may raise."""
        ...


@dataclass(frozen=True, slots=True)
class _Named:
    """A pack of a step."""

    step: int
    number: int
    pack: PackRef


async def open_walk(
    store: Store,
    table: TensorTable,
    anchor: AnchorRecord,
    course: Course,
    deltas: Deltas,
    *,
    chunks: ChunkList | None = None,
    nbytes: int = WINDOW_BYTES,
) -> Walk:
    """A walk over ``chunks`` (None: all) in windows of ``nbytes``; ``close`` it.

    Raises what opening the anchor does, and what ``deltas`` do. Memory: some numbers for each window and each
    step, and a few indexes.
    """
    opened = await open_anchor(store, anchor.version, anchor.anchor, table)
    windows = windows_of(table, opened.grids, chunks, nbytes)
    names, sharing = PackNames(course), Sharing(table)
    rows = RowFile(windows, chosen=chunks is not None)
    try:
        async with aclosing(_indexes(store, table, course, _packs(course, deltas, names))) as indexes:
            async for named, index in indexes:
                if isinstance(index, CorruptError):
                    deltas.lost(named.step, index)
                    continue
                deltas.indexed(named.step, index)
                sharing.add(named.step, index)
                await asyncio.to_thread(rows.add, named.step, named.number, index)
        sharing.seal()
        await asyncio.to_thread(rows.seal)
    except BaseException:
        rows.close()
        raise
    portion = AnchorPortion(store, table, opened)
    return Walk(store, table, portion, course, windows, rows, names, frozenset(sharing.steps))


def _indexes(
    store: Store, table: TensorTable, course: Course, packs: AsyncGenerator[_Named, None]
) -> AsyncGenerator[tuple[_Named, PackIndex | CorruptError], None]:
    """The index of each pack, in turn, or what is wrong with it."""

    async def fetch(named: _Named) -> tuple[_Named, PackIndex | CorruptError]:
        try:
            return named, await fetch_pack_index(store, course.steps[named.step].version, named.pack, table)
        except CorruptError as error:
            return named, error

    return by_weight(packs, fetch, _index_bytes, budget=_INDEXES_BYTES, most=_AHEAD)


def _index_bytes(named: _Named) -> int:
    return index_bytes(named.pack.rows)


async def _packs(course: Course, deltas: Deltas, names: PackNames) -> AsyncGenerator[_Named, None]:
    async with aclosing(in_order(range(len(course.steps)), deltas.record, ahead=_AHEAD)) as records:
        step = 0
        async for record in records:
            names.add(record)
            for number, pack in enumerate(() if record is None else record.packs):
                yield _Named(step, number, pack)
            step += 1
