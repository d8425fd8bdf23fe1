"""The reader: follows a stream and keeps live tensors at a version.

Its states (SPEC section "Reader states"): empty -> ready -> (torn ->) ready.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np

from deltastore.errors import DeltastoreError, InputError, StoreError, TornError
from deltastore.format.attestation import Attestation
from deltastore.format.digest import digest_text
from deltastore.format.records import AnchorRecord, DeltaRecord, Record, record_key
from deltastore.format.table import TensorTable
from deltastore.layout.batches import chunks_in_order
from deltastore.layout.memory import LiveTensors
from deltastore.layout.pieces import Layout
from deltastore.log import Log, Manifest
from deltastore.reader.attesting import attested, write_attestation
from deltastore.reader.comparing import differing
from deltastore.reader.host import HostTargets
from deltastore.reader.loading import Loader
from deltastore.reader.placing import targets_of
from deltastore.reader.staging import Staged, Stager
from deltastore.reader.standing import Standing, holds, needed_by
from deltastore.reader.synced import Pause, Synced, Tally
from deltastore.replay import Path, find_path
from deltastore.stores.base import Store

__all__ = ["AsyncReader", "Pause", "Synced"]

_HELD_SHARE: Final = 0.25
"""Deltas staged together are written once they hold more than this part of the bytes that are held."""


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
        layout: Layout | None = None,
    ) -> None:
        self._store = store
        self._log = Log(store)
        self._table = table
        self._targets = targets_of(table, tensors, threads=threads, layout=layout)
        self._needed = needed_by(self._targets)
        self._stager = Stager(store, table, self._targets, self._needed)
        self._loader = Loader(store, table, self._targets, self._needed, threads)
        shard = self._targets.shard
        self._held_bytes = table.nbytes if shard is None else shard.nbytes
        self._newest = newest
        self._last = last
        self._pause = pause
        self._standing: Standing | None = None
        self._half_written: Staged | None = None
        self._torn = False
        self._adoption_tried = False
        self._turn = asyncio.Lock()

    @property
    def version(self) -> int | None:
        """The version in memory; None before the first ``sync``, and while torn."""
        return None if self._standing is None else self._standing.record.version

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
        return self.version != self._newest.version

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
            before, tally = self.version, Tally()
            await self._reach(target, tally)
        seconds = time.perf_counter() - started
        return Synced(
            target.version,
            before,
            tally.nbytes,
            tally.changed,
            seconds,
            tally.pause_seconds,
            tally.requests,
        )

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
            if self._standing is not None and not self._holds(self._standing):
                self._give_up()
            return self._standing is not None

    async def compare(self, version: int | None = None) -> tuple[str, ...]:
        """What holds other bits than ``version``; by default than the newest that is stored whole.

        Names of parameters, or without a layout of tensors: none for an engine that has loaded that version,
        if the layout is right. Fetches what loading it would, and writes nothing.
        """
        async with self._turn:
            self._check_in_place()
            target = await self._target(version)
            path = await find_path(self._log, target)
            return await differing(self._loader, path if version is not None else Path(path.anchor, ()))

    async def attest(
        self, path: str | os.PathLike[str] | None = None, *, nonce: str | None = None, label: str = ""
    ) -> Attestation:
        """State what memory holds: a digest of what is held of each chunk, computed now from every element.

        ``deltastore validate URL --live PATH`` compares it with the store, on any machine. ``path``: a file
        to write it to. ``nonce``: 32 hexadecimal digits by which whoever asked knows it again; ``label``: for
        people. One request. Raises ``TornError`` for a reader that is at no version.
        """
        async with self._turn:
            self._check_in_place()
            if self._standing is None:
                raise TornError(
                    "torn", "the reader is at no version, and so has nothing to attest: sync first"
                )
            digested = partial(
                attested,
                self._table,
                self._targets,
                self._needed,
                self._standing.record,
                stream=(await self._log.birth()).stream,
                nonce=nonce,
                label=label,
            )
            # A device is quick, and goes by the stream that is current in this thread.
            on_host = isinstance(self._targets, HostTargets)
            attestation = await asyncio.to_thread(digested) if on_host else digested()
            if path is not None:
                await asyncio.to_thread(write_attestation, attestation, path)
            return attestation

    def _give_up(self) -> None:
        """The weights are of no version, and no delta leads to one: the next way is an anchor's."""
        self._standing, self._torn, self._half_written = None, True, None

    async def _reach(self, target: Manifest, tally: Tally) -> None:
        if self._torn:
            await self._repair(tally)
        path = await find_path(self._log, target, at=self.version)
        if self._standing is None and not self._torn and not self._adoption_tried:
            path = self._adopt(path)
        if path.anchor is not None:
            await self._load(path.anchor, tally)
        await self._advance(path.deltas, tally)

    def _adopt(self, path: Path) -> Path:
        """What is left of ``path`` when the tensors, as the engine loaded them, are a version on it.

        A manifest has the digest of all weights only, so a shard always starts from an anchor.
        """
        self._adoption_tried = True
        if self._needed is not None:
            return path
        found = self._targets.digests(chunks_in_order(self._table)).sum(dtype=np.uint64)
        digest = digest_text(int(found))
        for done in range(len(path.deltas), -1, -1):
            record = path.deltas[done - 1] if done else path.anchor
            if record is not None and record.digest == digest:
                self._standing = Standing(record)
                return Path(None, path.deltas[done:])
        return path

    async def _advance(self, deltas: Sequence[DeltaRecord], tally: Tally) -> None:
        """Stage one delta on the other and write them in one step; in more only where that takes much memory.

        When one cannot be staged, those before it are written all the same.
        """
        staged: Staged | None = None
        for record in deltas:
            live = self._standing
            base = live if staged is None else staged.standing
            if live is None or base is None or base.record.version != record.base:
                raise TornError(
                    "torn", f"version {record.version} builds on {record.base}, which is not in memory"
                )
            try:
                staged = await self._stager.stage(record, live, staged)
            except DeltastoreError as error:
                if error.code in ("bad_digest", "bad_patch"):
                    self._doubt()
                if staged is not None and not self._torn:
                    await self._write(staged, tally)
                raise
            if not self._targets.merges or staged.step.nbytes > self._held_bytes * _HELD_SHARE:
                await self._write(staged, tally)
                staged = None
        if staged is not None:
            await self._write(staged, tally)

    def _doubt(self) -> None:
        """A delta did not fit: is it the delta that is wrong, or the live weights?"""
        if self._standing is not None and not self._holds(self._standing):
            self._give_up()

    def _holds(self, standing: Standing) -> bool:
        """Whether the live weights are that version's; reads every element."""
        return holds(self._table, self._targets, self._needed, standing)

    async def _write(self, staged: Staged, tally: Tally, *, repairing: bool = False) -> None:
        """Write a staged delta. A repair that does not give exactly its version leaves the reader torn."""
        version = staged.standing.record.version
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
                    f"writing version {version} failed half way ({error!r}); the weights are of no "
                    "version: do not serve, call sync again to repair",
                ) from error
            if repairing and not self._holds(staged.standing):
                self._half_written = None
            else:
                self._standing, self._torn, self._half_written = staged.standing, False, None
            tally.pause_seconds += time.perf_counter() - begun
        tally.nbytes += staged.nbytes
        tally.requests += staged.requests
        tally.changed += staged.step.changed

    async def _load(self, record: AnchorRecord, tally: Tally) -> None:
        """Write a whole version, shard by shard; each shard is checked before any of it is written."""
        opened = await self._loader.open(record)
        async with self._pause():
            begun = time.perf_counter()
            self._check_in_place()
            self._give_up()
            loaded = await self._loader.load(record, opened)
            self._standing, self._torn = loaded.standing, False
            tally.pause_seconds += time.perf_counter() - begun
        tally.nbytes += loaded.nbytes
        tally.requests += loaded.requests
        tally.changed += loaded.changed

    async def _repair(self, tally: Tally) -> None:
        """Finish a half-written step, if that gives exactly its version; else leave it to an anchor."""
        if self._half_written is not None:
            await self._write(self._half_written, tally, repairing=True)
