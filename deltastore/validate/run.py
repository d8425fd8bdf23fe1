"""The levels of a validation, one after another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Final

from deltastore.anchors.in_order import in_order
from deltastore.errors import InputError, NotFoundError, StoreError, UnsupportedError
from deltastore.stores.base import Store
from deltastore.validate.chain import Chain, Committed, walk_chain
from deltastore.validate.checks import Level
from deltastore.validate.jumps import Jumps, Suspects
from deltastore.validate.notes import Notes
from deltastore.validate.objects import Content, Room
from deltastore.validate.replaying import check_by_replay, families
from deltastore.validate.report import BAD_OBJECT, LIMIT, Findings, Progress, Report
from deltastore.validate.structure import Tables, check_structure, read_again

__all__ = ["MEMORY", "validate"]

MEMORY: Final = 96 << 20
"""Bytes in memory at once, by default: two thirds for packs, shards and files, one for what names them."""

_AT_ONCE: Final = 16
"""Versions whose objects are looked up side by side: small requests, of which a distant store takes many."""


async def validate(
    store: Store,
    *,
    level: Level = Level.DEEP,
    version: int | None = None,
    newest: bool = False,
    jobs: int = 2,
    progress: Progress | None = None,
    resume: Path | None = None,
    memory: int = MEMORY,
    limit: int = LIMIT,
) -> Report:
    """Check a stream, or no more than what reading ``version``, or the ``newest`` one, takes.

    ``jobs`` objects are read and hashed side by side, and take about ``memory`` bytes together. ``progress``
    is called with (bytes done, bytes in all). ``resume`` is a file of notes, created if it is absent: the
    content of versions that it says were sound is not read again, and what is found sound now is added. The
    log is always read to its end. ``limit`` problems are listed, 0: all; all are counted.

    By default everything is judged, where the command ``deltastore validate`` stops at level content unless
    it is told to go on. A replay writes a temporary file of 60 bytes for each index row of the deltas of one
    anchor, where ``TMPDIR`` says. The C library may keep memory that is free again for each thread, about
    twice what is in use; the command tells glibc not to (``M_ARENA_MAX``), which is for a process to decide.

    Raises ``NotFoundError`` (``no_stream``, ``no_version``), ``InputError("bad_argument")`` for arguments
    that contradict each other and notes that are not of this stream, and ``StoreError`` for a store that
    gives no log, or fails with 100 objects. Everything else is in the report, the first bad object first:
    what is damaged, of a newer format, or could not be read. Neither ``jobs`` nor ``memory`` changes it.
    """
    _check_arguments(level, version, resume, newest=newest, jobs=jobs)
    findings = Findings(progress, limit)
    chain = await walk_chain(store, findings, last=version)
    versions = _wanted(chain, version, newest=newest)
    if newest and not versions and not findings.found:
        raise NotFoundError("no_version", f"{store.url} has no version yet", where=store.url)
    async with _opened(resume, chain.stream) as notes:
        run = _Run(store, chain, findings, versions, notes)
        await run.judge(level, jobs, memory)
        return run.report(level, None if version is None and not newest else max(versions, default=version))


def _check_arguments(
    level: Level, version: int | None, resume: Path | None, *, newest: bool, jobs: int
) -> None:
    if jobs < 1:
        raise InputError("bad_argument", f"jobs is {jobs}; give 1 or more")
    if newest and version is not None:
        raise InputError("bad_argument", f"version {version} and the newest one: give one of them")
    if resume is not None and level < Level.CONTENT:
        raise InputError(
            "bad_argument", "notes are of content, and level structure reads none: leave resume out"
        )


@asynccontextmanager
async def _opened(resume: Path | None, stream: str | None) -> AsyncIterator[Notes | None]:
    if resume is None or stream is None:
        yield None
        return
    notes = await asyncio.to_thread(Notes.open, resume, stream)
    try:
        yield notes
    finally:
        await asyncio.to_thread(notes.close)


def _wanted(chain: Chain, version: int | None, *, newest: bool) -> list[int]:
    """What to check, in order: of a log that is broken before it, nothing but the log."""
    if version is None and not newest:
        return list(chain.committed)
    wanted = chain.newest if version is None else version
    return chain.path(wanted) if wanted in chain.committed else []


class _Run:
    """One validation of some versions of a stream, each of which comes after its base."""

    def __init__(
        self, store: Store, chain: Chain, findings: Findings, versions: list[int], notes: Notes | None
    ) -> None:
        self._store = store
        self._chain = chain
        self._findings = findings
        self._tables = Tables(store, findings)
        self._notes = notes
        self._committed = [chain.committed[version] for version in versions]
        self._unread = [one for one in self._committed if not self._noted(one, Level.CONTENT)]
        self._jumps = Jumps(chain)
        self._reread: set[int] = set()

    def _noted(self, committed: Committed, level: Level) -> bool:
        return self._notes is not None and self._notes.sound(committed, level)

    async def judge(self, level: Level, jobs: int, memory: int) -> None:
        """Go as far as ``level``."""
        self._expect(level)
        await self.structure(memory // 3, last=level == Level.STRUCTURE)
        if level >= Level.CONTENT:
            await self.content(jobs, memory, last=level == Level.CONTENT)
        if level >= Level.DEEP:
            await self.deep(jobs)

    def _expect(self, level: Level) -> None:
        """How many bytes will be looked at, or at level structure looked up."""
        looked_up = self._committed if level < Level.CONTENT else self._unread
        self._findings.total = sum(one.nbytes for one in looked_up)
        if level >= Level.DEEP:
            self._findings.total += sum(
                one.nbytes for one in self._committed if not self._noted(one, Level.DEEP)
            )

    async def structure(self, memory: int, *, last: bool) -> None:
        """Table, inventory, and all objects of each version. ``last``: nothing is read after."""
        room = Room(_AT_ONCE, memory)

        async def looked_at(committed: Committed) -> tuple[Committed, Findings]:
            found = self._findings.apart()
            async with room.of(committed.memory):
                await self._structure(committed, found)
            return committed, found

        async with aclosing(in_order(self._committed, looked_at, ahead=_AT_ONCE)) as checked:
            async for committed, found in checked:
                self._findings.merge(found)
                self._findings.advance(committed.nbytes * last)
                self._revoke_bad((committed,))
                await self._sync_notes()

    async def _structure(self, committed: Committed, found: Findings) -> None:
        try:
            record = await read_again(self._store, committed)
            await check_structure(self._store, record, self._tables, found)
        except BAD_OBJECT as error:
            found.add(error, committed.version)

    async def content(self, jobs: int, memory: int, *, last: bool) -> None:
        """Every byte of each version that notes say nothing of. ``last``: no replay comes after."""
        room = Room(jobs, memory * 2 // 3)
        content = Content(self._store, self._tables, room, self._findings, opened=memory // 3)
        self._reread.update(one.version for one in self._unread)
        suspects = Suspects(self._jumps)
        async with aclosing(content.check(self._unread)) as results:
            async for checked in results:
                one = checked.committed
                known = self._jumps.measure(one, checked.difference)
                doubtful = suspects.has(one.version)
                if doubtful and last:
                    checked.add(self._jumps.error(one.version))
                elif known and not doubtful:
                    checked.findings.passed(("DS062",))
                self._findings.merge(checked.findings)
                self._revoke_bad((one,))
                if not doubtful and one.version not in self._findings.bad_versions:
                    self._note(one, Level.CONTENT)
                await self._sync_notes()

    def _note(self, committed: Committed, level: Level) -> None:
        if self._notes is not None:
            self._notes.add(committed, level)

    async def _sync_notes(self) -> None:
        if self._notes is not None and self._notes.due:
            await asyncio.to_thread(self._notes.sync)

    def _revoke_bad(self, versions: Iterable[Committed]) -> None:
        for committed in versions:
            if self._notes is not None and committed.version in self._findings.bad_versions:
                self._notes.revoke(committed)

    async def deep(self, jobs: int) -> None:
        """Replay all versions whose content is good, and that of all versions below them."""
        every = [one.version for one in self._committed]
        whole = set(self._chain.whole(every, self._findings.bad_versions))
        suspects = Suspects(self._jumps)
        for family in families(self._chain, every):
            wanted = self._unreplayed([version for version in family if version in whole])
            if wanted:
                self._reread.update(wanted)
                off = await check_by_replay(self._store, self._chain, wanted, self._findings, jobs=jobs)
                suspects.anchor_is_off(family[0], off)
            self._add_suspects(family, suspects)
            self._revoke_bad(self._chain.committed[version] for version in family)
            for version in self._chain.whole(wanted, self._findings.bad_versions):
                self._note(self._chain.committed[version], Level.DEEP)
            await self._sync_notes()

    def _add_suspects(self, versions: list[int], suspects: Suspects) -> None:
        """What records alone tell of digests, where a replay has not found out whose is wrong."""
        for version in versions:
            if suspects.has(version) and version not in self._findings.wrong_digests:
                self._findings.add(self._jumps.error(version), version)

    def _unreplayed(self, family: list[int]) -> list[int]:
        """Of a family, in order, the versions that notes say nothing of, with all versions below them."""
        wanted: set[int] = set()
        for version in reversed(family):
            committed = self._chain.committed[version]
            if version in wanted or not self._noted(committed, Level.DEEP):
                wanted.add(version)
                wanted.update(() if committed.base is None else (committed.base,))
        return sorted(wanted)

    def report(self, level: Level, version: int | None) -> Report:
        """What was found, where no more than what reading ``version`` takes was wanted."""
        findings, committed = self._findings, self._committed
        sound = self._chain.whole([one.version for one in committed], findings.bad_versions)
        return Report(
            level=level,
            version=version,
            records=self._chain.records,
            versions=len(committed),
            anchors=sum(one.base is None for one in committed),
            packs=sum(one.packs for one in committed),
            nbytes=sum(one.nbytes for one in committed),
            resumed=self._resumed() if level >= Level.CONTENT else 0,
            sound=sound[-1] if sound else None,
            stopped=self._chain.stopped,
            found=findings.found,
            unsupported=findings.kinds[UnsupportedError.exit_status],
            unread=findings.kinds[StoreError.exit_status],
            worst=findings.worst,
            judged=dict(findings.judged),
            broken=dict(findings.broken),
            problems=tuple(findings.problems),
            figures=dict(findings.figures),
        )

    def _resumed(self) -> int:
        """How many versions are sound as the notes say, and no more was looked at."""
        looked_at = self._reread | self._findings.bad_versions
        return sum(one.version not in looked_at for one in self._committed)
