"""The writer: live tensors in, versions out."""

from __future__ import annotations

import asyncio
import operator
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, SupportsIndex

from deltastore.detect.changes import LiveDetector
from deltastore.detect.external import External
from deltastore.detect.findings import Findings
from deltastore.detect.inverse import AdamWInverse
from deltastore.detect.marks import MarksByName
from deltastore.detect.snapshot import Snapshot
from deltastore.errors import InputError
from deltastore.format.records import Certificate, check_metadata
from deltastore.layout.live import LiveWeights
from deltastore.layout.live_parts import LiveParts
from deltastore.log import Manifest
from deltastore.stores.base import Store
from deltastore.writer.background import Publishing
from deltastore.writer.committing import Committing, Metadata, Opened, Wanted
from deltastore.writer.packing import Packing, Progress, upload_changes
from deltastore.writer.published import Published

__all__ = ["AsyncWriter"]


class AsyncWriter:
    """One trainer process that publishes its live tensors. Made by ``open_writer``.

    It keeps a copy of what was last published (the snapshot detector), unless an AdamW optimizer is attached:
    then it inverts the optimizer's steps. Calls take turns. Close it, or use it as a context manager, when
    ``publish_async`` was used or an optimizer is attached.
    """

    def __init__(
        self,
        store: Store,
        committing: Committing,
        live: LiveWeights | LiveParts,
        detector: LiveDetector,
        base: Manifest | None,
        packing: Packing,
        threads: int = 1,
    ) -> None:
        self._threads = threads
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

    async def attach(self, optimizer: Any) -> None:
        """Find changes by inverting the steps of ``optimizer``, and keep no copy of the weights.

        A ``torch.optim.AdamW`` or what is like it (Apex, Transformer Engine), over FP32 parameters that are
        published as BF16; a wrapper of such, or several. The hooks of its steps tell the writer all it needs.
        What it cannot invert, it says once in the log ``deltastore.detect``, and keeps a copy of. Give every
        optimizer that moves published tensors, before it steps again. Raises InputError for what is no
        optimizer, and for a tensor that two of them own.
        """
        await self._wait_for_earlier()
        async with self._turn:
            await self._settle()
            detector = self._detector
            if isinstance(detector, AdamWInverse):
                detector.attach(optimizer)
                return
            if not isinstance(detector, Snapshot):
                raise InputError("bad_argument", f"this writer detects by {detector.name}: open another one")
            parts = self._live if isinstance(self._live, LiveParts) else self._live.parts
            inverse = AdamWInverse.after(parts, detector, threads=self._threads)
            inverse.attach(optimizer)
            self._detector = inverse

    def mark(self, marks: MarksByName) -> None:
        """These elements may have changed since the last version, beside those that were marked before.

        For a writer with ``detector="external"``: tensor name -> a bool mask of the tensor's shape, its
        row-major indexes, or ``PackedBits`` (of a tensor in parts: one for each that is not empty). Whatever
        is not marked must not have changed: a block of 2048 elements without a mark is checked against its
        digest, and within a block that has one the marks are believed. Raises InputError for marks that do
        not fit.
        """
        if not isinstance(self._detector, External):
            raise InputError("bad_argument", 'marks are for a writer with detector="external": open one')
        self._detector.mark(marks)

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
        await publishing.ended_or(found)
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
        """Wait for what is in the background; raises what it met. The tensors and the store stay open.

        An attached optimizer is let go: what it does from then on is not followed.
        """
        for publishing in tuple(self._background):
            await publishing.ended()
        try:
            await self._wait_for_earlier()
        finally:
            self._detector.close()

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
        if self._detector.holds_copy:
            self._base = None  # the copy is no version's until this one is committed
        await self._detector.retake()
        if found is not None and self._detector.holds_copy:
            found()
        return await self._committing.commit_whole(opened, wanted, self._detector, self._packing, progress)

    async def _delta(
        self, opened: Opened, wanted: Wanted, progress: Progress | None, found: Callable[[], None] | None
    ) -> Manifest:
        uploaded = await upload_changes(
            self._store,
            self._live.table,
            self._detector.changes(),
            opened.version,
            opened.nonce,
            packing=self._packing,
            progress=progress,
            found=found,
        )
        uploaded.certificate = _certificate(self._detector.findings)
        return await self._committing.commit(opened, wanted, uploaded, self._detector.name)


def _certificate(findings: Findings | None) -> Certificate | None:
    if findings is None:
        return None
    return Certificate(**{name: getattr(findings, name) for name in Certificate.model_fields})


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
