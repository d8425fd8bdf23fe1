"""Statistics of the versions of a stream: exact ones by replay, or what packs alone tell."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import Final

from deltastore.anchors.in_order import in_order
from deltastore.errors import InputError, NotFoundError
from deltastore.format.pack import PackIndex, index_bytes
from deltastore.format.records import DeltaRecord, PackRef
from deltastore.format.table import TensorTable
from deltastore.history.array_tally import ArrayTally
from deltastore.history.layers import ArrayLayers
from deltastore.history.lineage import EVERY, Deltas, Family, Lineage, read_lineage
from deltastore.history.version_stats import DeltaTally, VersionStats, anchor_stats
from deltastore.kernels.rows import Rows, StagedBits
from deltastore.layout.watched import Progress
from deltastore.replay import fetch_pack_index, read_table
from deltastore.stores.base import Store
from deltastore.windows.ahead import by_weight
from deltastore.windows.patches import Batch, FetchedBatch, batches_of, fetch_batch
from deltastore.windows.rows import placed_rows
from deltastore.windows.walk import Watch, Weights

__all__ = ["stream_stats"]

_AHEAD: Final = 8
"""Records that are fetched at once."""

_ROWS: Final = 1 << 12
_BATCHES: Final = 4
_BATCHES_BYTES: Final = 8 << 20
"""Rows that are looked at together; batches of patches on their way, and what they weigh."""


async def stream_stats(
    store: Store,
    first: int | None = None,
    last: int | None = None,
    *,
    packs_only: bool = False,
    progress: Progress | None = None,
) -> list[VersionStats]:
    """What each version from ``first`` to ``last`` changed, how far, and what took its bytes.

    Weights are replayed from the anchors that the versions grow from, one window of chunks after another, so
    that steps and changes are exact. ``packs_only``: nothing but packs is read; then it is the width of its
    run that says how far an element moved, and what is counted are elements written, changed or not.

    ``progress`` is called with (bytes done, bytes in all). Memory: the answer, a window, and for each version
    2 KiB, with 2 KiB and 4 bytes a tensor, or 2**20 elements of it, for an array that a window is in. Index
    rows stand in a temporary file.

    Raises ``NotFoundError``, also where there is no such version, ``CorruptError``, ``UnsupportedError``, and
    ``InputError("bad_argument")`` for a last version below the first.
    """
    start, end = 0 if first is None else first, EVERY.stop if last is None else last + 1
    lineage = await read_lineage(store, range(start, end), start)
    if not lineage.chosen:
        oldest, newest = lineage.ends
        wanted = f"from {first} on" if last is None else f"in {first or 0} to {last}"
        message = f"no version is {wanted}; the stream has {oldest} to {newest}"
        if first is not None and last is not None and first > last:
            raise InputError("bad_argument", f"{message}; give the lower one first")
        raise NotFoundError("no_version", message, where=store.url)
    counting = _Counting(lineage, progress)
    return await (counting.packs() if packs_only else counting.replayed())


class _Tables:
    """The tables of a stream: the last one that was asked for is kept."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: tuple[TensorTable, list[ArrayLayers]] | None = None

    async def get(self, sha256: str) -> tuple[TensorTable, list[ArrayLayers]]:
        """A table, and the layers of its arrays."""
        if self._known is None or self._known[0].sha256 != sha256:
            table = await read_table(self._store, sha256)
            self._known = table, [ArrayLayers(array) for array in table.arrays]
        return self._known


class _Counting:
    """Counts the chosen versions of a lineage."""

    def __init__(self, lineage: Lineage, progress: Progress | None) -> None:
        self._lineage = lineage
        self._progress = progress
        self._tables = _Tables(lineage.store)
        self._done = 0
        self._total = 0

    def _advance(self, nbytes: int) -> None:
        self._done += nbytes
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)

    async def packs(self) -> list[VersionStats]:
        """From packs alone, version by version."""
        known = self._lineage.known
        self._total = sum(known[version].nbytes for version in self._lineage.chosen)
        found = []
        async with aclosing(in_order(self._lineage.chosen, self._lineage.record, ahead=_AHEAD)) as records:
            async for record in records:
                if not isinstance(record, DeltaRecord):
                    found.append(anchor_stats(record))
                    self._advance(known[record.version].nbytes)
                    continue
                table, layers = await self._tables.get(record.table)
                tallies = list(map(ArrayTally, table.arrays, layers))
                for pack in record.packs:
                    await self._pack(record.version, pack, table, tallies)
                counted = DeltaTally(record, exact=False)
                for tally in tallies:
                    counted.add(tally)
                found.append(counted.stats())
        return found

    async def _pack(
        self, version: int, pack: PackRef, table: TensorTable, tallies: Sequence[ArrayTally]
    ) -> None:
        """Count one pack, some patches at a time."""
        store = self._lineage.store
        index = await fetch_pack_index(store, version, pack, table)
        self._advance(index_bytes(pack.rows))

        async def fetch(batch: Batch) -> FetchedBatch:
            return await fetch_batch(store, batch, index.where, version)

        batches = by_weight(
            batches_of(_in_parts(index), lambda _: False),
            fetch,
            lambda batch: batch.nbytes,
            budget=_BATCHES_BYTES,
            most=_BATCHES,
        )
        async with aclosing(batches) as fetched:
            async for one in fetched:
                if one.failure is not None:
                    raise one.failure
                await asyncio.to_thread(_count_written, one, index, table, tallies)
                self._advance(len(one.body))

    async def replayed(self) -> list[VersionStats]:
        """Exactly, family by family."""
        lineage = self._lineage
        families = lineage.families()
        for family in families:
            self._total += (await self._table_of(family))[0].nbytes
        found: dict[int, VersionStats] = {}
        for family in families:
            found |= await self._family(family)
        anchors = [version for version in lineage.chosen if version not in found]
        async with aclosing(in_order(anchors, lineage.record, ahead=_AHEAD)) as records:
            async for record in records:
                found[record.version] = anchor_stats(record)
        return [found[version] for version in lineage.chosen]

    async def _table_of(self, family: Family) -> tuple[TensorTable, list[ArrayLayers]]:
        return await self._tables.get(self._lineage.known[family.anchor].table)

    async def _family(self, family: Family) -> dict[int, VersionStats]:
        table, layers = await self._table_of(family)
        deltas = _Counted(self._lineage, family)
        walk = await self._lineage.walk(table, deltas)
        try:
            changes = _Changes(table, layers, deltas.counted)
            ends = [*(int(window.chunks["array"][0]) for window in walk.windows[1:]), len(table.arrays)]
            for number, end in enumerate(ends):
                if number < len(walk.windows):
                    await walk.over(number, changes)
                    self._advance(walk.windows[number].nbytes)
                await asyncio.to_thread(changes.finish, end)
        finally:
            walk.close()
        return {one.version: one for one in (tally.stats() for tally in deltas.counted.values())}


class _Counted(Deltas):
    """Deltas of which those that were chosen are counted: ``counted``, by the number of their step."""

    def __init__(self, lineage: Lineage, family: Family) -> None:
        super().__init__(lineage, family)
        self._chosen = frozenset(lineage.chosen)
        self.counted: dict[int, DeltaTally] = {}

    async def record(self, step: int) -> DeltaRecord | None:
        """The manifest of a step."""
        record = await super().record(step)
        if record is not None and record.version in self._chosen:
            self.counted[step] = DeltaTally(record, exact=True)
        return record


class _Changes(Watch):
    """What ``counted`` deltas change. Arrays that no later window has are ``finish``ed, and forgotten."""

    def __init__(
        self, table: TensorTable, layers: Sequence[ArrayLayers], counted: dict[int, DeltaTally]
    ) -> None:
        self._table = table
        self._layers = layers
        self._counted = counted
        self._open: dict[tuple[int, int], ArrayTally] = {}
        self._finished = 0

    def fits(self, fetched: FetchedBatch, weights: Weights, staged: StagedBits) -> None:
        """Count a batch."""
        step = fetched.batch.step
        if step not in self._counted:
            return
        starts, offsets = staged.starts.tolist(), staged.offsets.tolist()
        for number, (row, data) in enumerate(fetched.patches()):
            array, chunk = int(row["array"]), int(row["chunk"])
            tally = self._open.get((array, step)) or self._open.setdefault((array, step), self._tally(array))
            tally.patch(row, data)
            positions = staged.positions[starts[number] : starts[number + 1]]
            old = weights.chunks[array, chunk].reshape(-1)[positions]
            new = staged.bits[offsets[number] :].view(old.dtype)[: len(positions)]
            tally.changed_from(chunk, positions, old, new)

    def finish(self, end: int) -> None:
        """No later window has an array below ``end``."""
        for array in range(self._finished, end):
            for step, counted in self._counted.items():
                known = self._open.pop((array, step)) if (array, step) in self._open else None
                counted.add(known or self._tally(array))
        self._finished = max(self._finished, end)

    def _tally(self, array: int) -> ArrayTally:
        return ArrayTally(self._table.arrays[array], self._layers[array])


def _in_parts(index: PackIndex) -> Iterator[Rows]:
    for start in range(0, len(index.rows), _ROWS):
        rows = index.rows[start : start + _ROWS]
        yield placed_rows(0, 0, rows, index.offsets[start : start + len(rows)])


def _count_written(
    fetched: FetchedBatch, index: PackIndex, table: TensorTable, tallies: Sequence[ArrayTally]
) -> None:
    """Count patches by what they write; the rules of section 9 are checked on the way."""
    for row, data in fetched.patches():
        decoded = index.read_patch(row, data.data, table)
        tally = tallies[int(row["array"])]
        tally.patch(row, data)
        tally.count(int(row["chunk"]), decoded.positions)
