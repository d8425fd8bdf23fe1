"""The reader: follows a stream and keeps live tensors at a version.

Its states (SPEC section "Reader states"): empty -> ready -> (torn ->) ready.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

from deltastore.anchors.reading import AnchorWeights
from deltastore.errors import CorruptError, DeltastoreError, InputError, NotFoundError, StoreError, TornError
from deltastore.format.digest import digest_text
from deltastore.format.records import AnchorRecord, DeltaRecord, Record, record_key
from deltastore.format.table import TensorTable
from deltastore.kernels.threads import chosen_threads
from deltastore.layout.memory import LiveTensors
from deltastore.layout.weights import chunks_of
from deltastore.log import Log, Manifest
from deltastore.reader.opening import targets_of
from deltastore.reader.staging import Staged, stage
from deltastore.replay import Path, find_path, read_table
from deltastore.stores.base import Store

__all__ = ["AsyncReader", "Pause", "Synced", "open_reader"]

_HELD_SHARE: Final = 0.25
"""Deltas staged together are written once they hold more than this part of the model's bytes."""

_SHARDS: Final = 3
"""Shards of an anchor that are in memory or on their way: one is written while the next ones are fetched."""

Pause = Callable[[], AbstractAsyncContextManager[None]]
"""Makes a context in which the engine does not touch its weights."""


@dataclass(frozen=True, slots=True)
class Synced:
    """What one ``sync`` did.

    ``version`` is now in memory, ``previous`` was before (None: nothing was). ``nbytes`` were fetched,
    ``changed`` elements written; ``seconds`` in all, ``pause_seconds`` of them inside the pause.
    """

    version: int
    previous: int | None
    nbytes: int
    changed: int
    seconds: float
    pause_seconds: float


@dataclass(slots=True)
class _Tally:
    nbytes: int = 0
    changed: int = 0
    pause_seconds: float = 0.0


class AsyncReader:
    """Keeps live tensors at a version of a stream. Made by ``open_reader``. Calls of ``sync`` take turns.

    ``version`` is always that of the weights in memory. While an apply has failed half way the reader is
    *torn*: ``version`` is None, ``torn`` is True, and the next ``sync`` repairs.
    """

    def __init__(
        self,
        store: Store,
        table: TensorTable,
        tensors: LiveTensors,
        newest: Manifest,
        last: Record,
        pause: Pause,
        threads: int,
    ) -> None:
        self._store = store
        self._log = Log(store)
        self._table = table
        self._targets = targets_of(table, tensors, threads=threads)
        self._newest = newest
        self._last = last
        self._pause = pause
        self._standing: Manifest | None = None
        self._half_written: Staged | None = None
        self._torn = False
        self._adoption_tried = False
        self._turn = asyncio.Lock()

    @property
    def version(self) -> int | None:
        """The version in memory; None before the first ``sync``, and while torn."""
        return None if self._standing is None else self._standing.version

    @property
    def torn(self) -> bool:
        """Whether the live weights are of no version because an apply stopped half way."""
        return self._torn

    @property
    def newest(self) -> int:
        """The newest version seen in the log."""
        return self._newest.version

    async def poll(self) -> bool:
        """Look for new records: one request when there are none. True when ``newest`` is not in memory."""
        async for record in self._log.newest_after(self._last):
            if record.slot <= self._last.slot:
                continue  # another task polled meanwhile
            self._last = record
            if isinstance(record, AnchorRecord | DeltaRecord):
                self._newest = record
        return self._standing is None or self._standing.version != self._newest.version

    async def wait(self, *, timeout: float | None = None, interval: float = 0.05) -> bool:  # noqa: ASYNC109
        """Poll every ``interval`` seconds until there is something to sync; False after ``timeout`` ones.

        A store that fails is polled again; its error is raised when it still fails after ``timeout``.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            failure = None
            try:
                if await self.poll():
                    return True
            except StoreError as error:
                failure = error
            left = interval if deadline is None else min(interval, deadline - time.monotonic())
            if deadline is not None and deadline <= time.monotonic():
                if failure is not None:
                    raise failure
                return False
            await asyncio.sleep(max(left, 0))

    async def sync(self, version: int | None = None) -> Synced:
        """Bring the live tensors to ``version``, or to the newest one.

        A delta is fetched and checked first, and only its writing happens inside the pause: when anything
        fetched is wrong, ``CorruptError`` leaves the weights untouched. A version stored whole (the first
        one, unless the weights are a version already, and when there is no way by deltas) is written shard
        by shard inside the pause. Whatever fails there leaves the reader torn (``TornError``, or the error
        of the store); the next call repairs.
        """
        started = time.perf_counter()
        async with self._turn:
            self._check_in_place()
            target = await self._target(version)
            before, tally = self.version, _Tally()
            await self._reach(target, tally)
        seconds = time.perf_counter() - started
        return Synced(target.version, before, tally.nbytes, tally.changed, seconds, tally.pause_seconds)

    def _check_in_place(self) -> None:
        """Weights in other memory than was given are of no known version, and not reached from here."""
        try:
            self._targets.weights.check_in_place()
        except InputError:
            self._give_up()
            raise

    async def _target(self, version: int | None) -> Manifest:
        if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
            raise InputError("bad_argument", f"a version is an integer, not {version!r:.80}")
        await self.poll()
        target = self._newest
        if version is not None and version != target.version:
            target = await self._log.manifest(version, last=self._last)
        if target.table != self._table.sha256:
            await find_path(self._log, target)  # a delta with another table than its base is worse than that
            raise InputError(
                "bad_argument",
                f"version {target.version} has another tensor table: open a new reader with its tensors",
                where=record_key(target.slot),
            )
        return target

    async def verify(self) -> bool:
        """Whether the live weights are exactly those of ``version``; reads every element once.

        A delta notices most foreign writes to the elements that it changes, and none to others: this
        notices all. After False the reader is torn, and the next ``sync`` repairs.
        """
        async with self._turn:
            self._check_in_place()
            if self._standing is not None and not await self._holds(self._standing):
                self._give_up()
            return self._standing is not None

    def _give_up(self) -> None:
        """The weights are of no version, and no delta leads to one: the next way is an anchor's."""
        self._standing, self._torn, self._half_written = None, True, None

    async def _reach(self, target: Manifest, tally: _Tally) -> None:
        if self._torn:
            await self._repair(tally)
        path = await find_path(self._log, target, at=self.version)
        if self._standing is None and not self._torn and not self._adoption_tried:
            path = await self._adopt(path)
        if path.anchor is not None:
            await self._load(path.anchor, tally)
        await self._advance(path.deltas, tally)

    async def _adopt(self, path: Path) -> Path:
        """What is left of ``path`` when the tensors, as the engine loaded them, are a version on it."""
        self._adoption_tried = True
        digest = digest_text(await self._targets.digest())
        for done in range(len(path.deltas), -1, -1):
            record = path.deltas[done - 1] if done else path.anchor
            if record is not None and record.digest == digest:
                self._standing = record
                return Path(None, path.deltas[done:])
        return path

    async def _advance(self, deltas: Sequence[DeltaRecord], tally: _Tally) -> None:
        """Stage one delta on the other and write them in one step; in more only where that takes much memory.

        When one cannot be staged, those before it are written all the same.
        """
        staged: Staged | None = None
        base = self._standing
        for record in deltas:
            if base is None or base.version != record.base:
                raise TornError(
                    "torn", f"version {record.version} builds on {record.base}, which is not in memory"
                )
            try:
                staged = await stage(
                    self._store,
                    self._table,
                    record,
                    self._targets,
                    base_digest=int(base.digest, 16),
                    after=staged,
                )
            except DeltastoreError as error:
                if error.code in ("bad_digest", "bad_patch"):
                    await self._doubt()
                if staged is not None and not self._torn:
                    await self._write(staged, tally)
                raise
            base = record
            if not self._targets.merges or staged.step.nbytes > self._table.nbytes * _HELD_SHARE:
                await self._write(staged, tally)
                staged = None
        if staged is not None:
            await self._write(staged, tally)

    async def _doubt(self) -> None:
        """A delta did not fit: is it the delta that is wrong, or the live weights?"""
        if self._standing is not None and not await self._holds(self._standing):
            self._give_up()

    async def _holds(self, record: Manifest) -> bool:
        """Whether the live weights have the digest of that version; reads every element."""
        return digest_text(await self._targets.digest()) == record.digest

    async def _write(self, staged: Staged, tally: _Tally, *, repairing: bool = False) -> None:
        """Write a staged delta. A repair that does not give exactly its version leaves the reader torn."""
        record = staged.record
        async with self._pause():
            begun = time.perf_counter()
            self._check_in_place()
            self._standing, self._torn, self._half_written = None, True, staged
            try:
                staged.apply()
            except DeltastoreError:
                raise
            except Exception as error:
                raise TornError(
                    "torn",
                    f"writing version {record.version} failed half way ({error!r}); the weights are of no "
                    "version: do not serve, call sync again to repair",
                ) from error
            if repairing and not await self._holds(record):
                self._half_written = None
            else:
                self._standing, self._torn, self._half_written = record, False, None
            tally.pause_seconds += time.perf_counter() - begun
        tally.nbytes += staged.nbytes
        tally.changed += staged.step.changed

    async def _load(self, record: AnchorRecord, tally: _Tally) -> None:
        """Write a whole version, shard by shard; each shard is checked before any of it is written."""
        anchor = await AnchorWeights.open(
            self._store, record.version, record.anchor, self._table, fetches=_SHARDS
        )
        async with self._pause():
            begun = time.perf_counter()
            self._check_in_place()
            self._give_up()
            try:
                async for array, _, box, bits in chunks_of(anchor):
                    self._targets.write(array, box, bits)
            finally:
                await anchor.close()
            found = digest_text(await self._targets.digest())
            if found != record.digest:
                raise self._wrong_anchor(record, found)
            self._standing, self._torn = record, False
            tally.pause_seconds += time.perf_counter() - begun
        tally.nbytes += record.statistics.bytes
        tally.changed += self._table.elements

    def _wrong_anchor(self, record: AnchorRecord, found: str) -> DeltastoreError:
        if self._targets.tied:
            names = [self._table.arrays[array].names[member] for array, member in self._targets.tied[0]]
            return InputError(
                "wrong_memory",
                f"tensors {names[0]!r} and {names[1]!r} are one memory here, and do not fit version "
                f"{record.version}, which may have them apart: give each its own and open a new reader",
                where=names[1],
            )
        return CorruptError(
            "bad_digest",
            f"the anchor of version {record.version} has digest {found}, not {record.digest}",
            where=record.anchor.prefix(record.version),
        )

    async def _repair(self, tally: _Tally) -> None:
        """Finish a half-written step, if that gives exactly its version; else leave it to an anchor."""
        if self._half_written is not None:
            await self._write(self._half_written, tally, repairing=True)


async def open_reader(
    store: Store, tensors: LiveTensors, *, pause: Pause | None = None, threads: int | None = None
) -> AsyncReader:
    """A reader that will write versions of the stream in ``store`` into ``tensors``, in place.

    ``tensors``: every tensor of the stream, by checkpoint name, as NumPy arrays or torch tensors of
    exactly its shape and type, all in the memory of the CPU or all in that of one GPU. ``pause`` makes a
    context in which the engine leaves its weights alone. ``threads``: how many may decode and write at
    once; None: one for each processor, but at most 8. Nothing is fetched but the log and the table until the
    first ``sync``.

    Raises ``NotFoundError`` (``no_stream``, ``no_version``) and ``InputError`` naming the first tensor that
    does not fit.
    """
    log = Log(store)
    last = await log.tip()
    newest = await log.manifest_before(last)
    if newest is None:
        raise NotFoundError("no_version", f"{store.url} has no version yet: wait for the trainer's first one")
    table = await read_table(store, newest.table)
    return AsyncReader(store, table, tensors, newest, last, pause or nullcontext, chosen_threads(threads))
