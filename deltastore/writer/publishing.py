"""The writer: live tensors in, versions out."""

from __future__ import annotations

import asyncio
import operator
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self, SupportsIndex

from deltastore.detect.snapshot import Snapshot
from deltastore.errors import InputError
from deltastore.format.records import check_metadata
from deltastore.layout.live import LiveWeights
from deltastore.layout.live_parts import LiveParts
from deltastore.log import Manifest
from deltastore.stores.base import Store
from deltastore.writer.committing import Committing, Metadata, Opened, Wanted
from deltastore.writer.packing import Packing, Progress, upload_changes

__all__ = ["AsyncWriter", "Published", "Publishing"]


@dataclass(frozen=True, slots=True)
class Published:
    """A version that is committed: durable, and visible to every reader.

    ``changed`` of ``elements`` elements changed; ``nbytes`` were uploaded in packs (an anchor: in all its
    objects); ``manifest_bytes`` is the size of the record; ``seconds`` the time from call to commit. With
    several writers the numbers are those of all of them.
    """

    version: int
    kind: Literal["delta", "anchor"]
    slot: int
    changed: int
    elements: int
    nbytes: int
    manifest_bytes: int
    seconds: float

    @classmethod
    def of(cls, record: Manifest, seconds: float) -> Published:
        """What a manifest says, and how long it took."""
        return cls(
            version=record.version,
            kind=record.kind,
            slot=record.slot,
            changed=record.statistics.changed,
            elements=record.statistics.elements,
            nbytes=record.statistics.bytes,
            manifest_bytes=len(record.to_bytes()),
            seconds=seconds,
        )


class Publishing:
    """A version on its way in the background. Await it for what became of it, or leave it to the writer.

    An error that nobody awaited is raised by the writer's next call, or by its ``close``.
    """

    def __init__(self, task: asyncio.Task[Published]) -> None:
        self._task = task
        self._seen = False

    @property
    def done(self) -> bool:
        """Whether the version is committed, or has failed."""
        return self._task.done()

    def __await__(self) -> Generator[Any, None, Published]:
        return self._result().__await__()

    async def _result(self) -> Published:
        self._seen = True  # the caller hears of it, and nobody else has to
        try:
            await self.ended()
        except asyncio.CancelledError:
            self._seen = False
            raise
        return self._task.result()

    async def ended(self) -> None:
        """Wait until it is done, which a cancelled caller does not stop."""
        await asyncio.wait({self._task})

    def check(self) -> None:
        """Raise its error if it has failed and nobody has heard of that."""
        if self._task.done() and not self._seen:
            self._seen = True
            self._task.result()

    async def stop(self) -> None:
        """Cancel it, and wait until it has ended; an error of its own gives way to the cancellation."""
        self._task.cancel()
        await asyncio.wait({self._task})
        self._seen = True
        if not self._task.cancelled():
            self._task.exception()


class AsyncWriter:
    """One trainer process that publishes its live tensors. Made by ``open_writer``.

    It keeps a copy of what was last published (the snapshot detector). Calls take turns. Close it, or use it
    as a context manager, when ``publish_async`` was used.
    """

    def __init__(
        self,
        store: Store,
        committing: Committing,
        live: LiveWeights | LiveParts,
        detector: Snapshot,
        base: Manifest | None,
        packing: Packing,
    ) -> None:
        self._store = store
        self._committing = committing
        self._live = live
        self._detector = detector
        self._base = base
        self._packing = packing
        self._turn = asyncio.Lock()
        self._background: list[Publishing] = []

    @property
    def version(self) -> int | None:
        """The version that the next delta is based on; None when the next version will be an anchor."""
        return None if self._base is None else self._base.version

    @property
    def epoch(self) -> int:
        """The number of this incarnation."""
        return self._committing.number

    async def publish(
        self,
        *,
        version: int | None = None,
        step: SupportsIndex | None = None,
        metadata: Metadata | None = None,
        anchor: bool = False,
        progress: Progress | None = None,
    ) -> Published:
        """Commit the tensors as they are now as a new version. They must not change meanwhile.

        ``version``: default the last one + 1. ``step`` goes into the metadata. ``anchor=True`` stores the
        version whole. With several writers every rank calls this; rank 0 says version, metadata and anchor,
        and a ``step`` must be the same on all that give one.

        Raises ``InputError``, ``ConflictError`` (``version_taken``, ``aborted``) and ``FencedError``, and
        nothing was published; ``StoreError`` or ``ConflictError("undecided")``, and the version may be
        visible all the same, or become so: the next call finds out. Whatever was raised, the same changes
        are part of the next call; one with the same ``step`` and tensors returns the version if it turns out
        to be committed, so that several writers do not fall out of step. Waits first for an earlier
        ``publish_async``, and raises what that met if nobody has seen it; nothing was tried then.
        """
        await self._wait_for_earlier()
        wanted = _wanted(version, step, metadata, anchor)
        publishing = Publishing(asyncio.create_task(self._publish(wanted, progress, None)))
        try:
            return await publishing
        except asyncio.CancelledError:
            await publishing.stop()
            raise

    async def publish_async(
        self,
        *,
        version: int | None = None,
        step: SupportsIndex | None = None,
        metadata: Metadata | None = None,
        anchor: bool = False,
        progress: Progress | None = None,
    ) -> Publishing:
        """As ``publish``, but return as soon as the tensors may change again.

        All changes are found and encoded by then; what is left to upload, at most ``uploads`` packs, and the
        commit go on in the background. A next call waits for this version first, so versions keep their
        order and few bytes wait in memory. What fails in the background is raised by awaiting the returned
        object, or else by the next call, or by ``close``; the changes are then part of the next version.
        """
        await self._wait_for_earlier()
        wanted = _wanted(version, step, metadata, anchor)
        found = asyncio.Event()
        publishing = Publishing(asyncio.create_task(self._publish(wanted, progress, found.set)))
        waiting = asyncio.create_task(found.wait())
        try:
            await asyncio.wait({publishing._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await publishing.stop()
            raise
        finally:
            waiting.cancel()
        if not found.is_set():
            publishing.check()  # it failed while the tensors were still read
        self._background.append(publishing)
        return publishing

    async def _wait_for_earlier(self) -> None:
        """Wait for what is in the background; raises, once, what it met if nobody has seen that."""
        while self._background:
            earliest = self._background[0]
            await earliest.ended()
            if earliest in self._background:  # else another call has waited for it too
                self._background.remove(earliest)
            earliest.check()

    async def close(self) -> None:
        """Wait for what is in the background; raises what it met. The tensors and the store stay open."""
        for publishing in tuple(self._background):
            await publishing.ended()
        await self._wait_for_earlier()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _publish(
        self, wanted: Wanted, progress: Progress | None, found: Callable[[], None] | None
    ) -> Published:
        started = time.perf_counter()
        async with self._turn:
            self._live.check_in_place()
            landed = await self._settle()
            if landed is not None and _is_wanted(landed, wanted) and await self._detector.unchanged():
                return Published.of(landed, time.perf_counter() - started)
            opened = await self._committing.open(wanted, self._base)
            try:
                commit = self._whole if opened.base is None else self._delta
                record = await commit(opened, wanted, progress, found)
            except BaseException as error:
                if not self._committing.in_doubt:
                    self._detector.aborted()
                await self._committing.give_up(opened, error)
                raise
            self._advance(record)
        return Published.of(record, time.perf_counter() - started)

    async def _settle(self) -> Manifest | None:
        """Learn what became of a version in doubt; what was found for it is kept until then."""
        if not self._committing.in_doubt:
            return None
        landed = await self._committing.settle()
        if landed is None:
            self._detector.aborted()
        else:
            self._advance(landed)
        return landed

    def _advance(self, record: Manifest) -> None:
        self._base = None  # the copy is no version's while it is brought up to this one
        self._detector.committed()
        self._base = record

    async def _whole(
        self, opened: Opened, wanted: Wanted, progress: Progress | None, found: Callable[[], None] | None
    ) -> Manifest:
        self._base = None  # the copy is no version's until this one is committed
        await self._detector.retake()
        if found is not None:
            found()
        return await self._committing.commit_whole(opened, wanted, self._detector, self._packing, progress)

    async def _delta(
        self, opened: Opened, wanted: Wanted, progress: Progress | None, found: Callable[[], None] | None
    ) -> Manifest:
        uploaded = await upload_changes(
            self._store,
            self._live.table,
            self._detector,
            opened.version,
            opened.nonce,
            packing=self._packing,
            progress=progress,
            found=found,
        )
        return await self._committing.commit(opened, wanted, uploaded, self._detector.name)


def _is_wanted(landed: Manifest, wanted: Wanted) -> bool:
    """Whether a call for ``wanted`` is the one that ``landed`` came of, made again."""
    same_step = wanted.step is not None and landed.metadata.get("step") == wanted.step
    as_whole = landed.kind == "anchor" or not wanted.whole
    return same_step and as_whole and wanted.version in (None, landed.version)


def _wanted(
    version: int | None, step: SupportsIndex | None, metadata: Metadata | None, anchor: bool
) -> Wanted:
    number = None if step is None else _whole_number(step)
    notes = check_metadata({**(metadata or {}), **({} if number is None else {"step": number})})
    return Wanted(version, number, notes, anchor)


def _whole_number(step: SupportsIndex) -> int:
    """A step as an integer; NumPy's and torch's integers are fine."""
    try:
        return operator.index(step)
    except TypeError:
        raise InputError("bad_argument", f"a step is an integer, not {step!r:.80}") from None
