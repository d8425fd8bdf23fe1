"""The sync face: the same calls as the async core, each run to its end on the stream's own event loop.

No loop is shared: a ``Stream`` owns one ``asyncio.Runner`` and lends it to the writers and readers that it
makes. No thread is started but by ``Writer.publish_async``. Inside an event loop, use ``AsyncStream``.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Self, SupportsIndex

from deltastore.detect.marks import MarksByName
from deltastore.format.records import Record
from deltastore.layout.live_parts import PartTensors
from deltastore.layout.memory import LiveTensors
from deltastore.lent_loop import LentLoop
from deltastore.log import Manifest
from deltastore.reader.following import AsyncReader, Pause, Synced
from deltastore.stores.base import Store
from deltastore.stream import AsyncStream
from deltastore.writer.background import Publishing
from deltastore.writer.committing import Metadata
from deltastore.writer.opening import TIMEOUT_SECONDS, DetectorName
from deltastore.writer.packing import PACK_TARGET_BYTES, UPLOADS
from deltastore.writer.published import Published
from deltastore.writer.publishing import AsyncWriter

__all__ = ["Pending", "Reader", "Stream", "Writer", "create", "open"]

SyncPause = Callable[[], AbstractContextManager[Any]]


class Stream:
    """One policy's sequence of versions. Made by ``deltastore.open`` and ``deltastore.create``.

    Close it, or use it as a context manager; its writers and readers end with it. One thread at a time may
    use it and them: a call while another is running is refused, and has done nothing.
    """

    def __init__(self, core: AsyncStream, loop: LentLoop) -> None:
        self._core = core
        self._loop = loop

    def records(self) -> list[Record]:
        """Every record from slot 0 on, with the hash chain checked."""

        async def collect() -> list[Record]:
            return [record async for record in self._core.records()]

        return self._loop.run(collect())

    def newest(self) -> Manifest:
        """The manifest of the newest version; ``NotFoundError("no_version")`` while there is none."""
        return self._loop.run(self._core.newest())

    def manifest(self, version: int) -> Manifest:
        """The manifest of ``version``; ``NotFoundError("no_version")``."""
        return self._loop.run(self._core.manifest(version))

    def writer(
        self,
        tensors: PartTensors,
        *,
        resumes: int | None = None,
        cast: bool = False,
        label: str = "",
        pack_bytes: int = PACK_TARGET_BYTES,
        uploads: int = UPLOADS,
        threads: int | None = None,
        rank: int = 0,
        writers: int = 1,
        run: str = "",
        timeout: float = TIMEOUT_SECONDS,
        optimizer: Any = None,
        detector: DetectorName = "snapshot",
    ) -> Writer:
        """Begin a new epoch that publishes ``tensors`` (name -> NumPy array, torch tensor, or ``Part`` s).

        Every earlier writer of the stream is fenced. The version whose weights ``tensors`` are, proved by
        digest, is the first base; where there is none, the first version is stored whole. ``resumes``
        insists on one. ``cast``: F32 tensors may stand for BF16 or F16 ones. ``label`` names the trainer in
        the log. ``threads``: how many may compare and encode at once; None: one for each processor, but at
        most 8. ``rank``, ``writers``, ``run``, ``timeout``: see ``open_writer``; several processes publish
        together, each the elements that it holds. ``optimizer``: a ``torch.optim.AdamW`` over FP32
        ``tensors``; its steps are inverted, and no copy of the weights is made (see ``AsyncWriter.attach``).
        ``detector="external"``: ``Writer.mark`` says what changes.
        Raises ``InputError`` naming the first tensor that does
        not fit.
        """
        core = self._core.writer(
            tensors,
            resumes=resumes,
            cast=cast,
            label=label,
            pack_bytes=pack_bytes,
            uploads=uploads,
            threads=threads,
            rank=rank,
            writers=writers,
            run=run,
            timeout=timeout,
            optimizer=optimizer,
            detector=detector,
        )
        return Writer(self._loop.run(core), self._loop)

    def reader(
        self, tensors: LiveTensors, *, pause: SyncPause | None = None, threads: int | None = None
    ) -> Reader:
        """A reader that writes versions into ``tensors``, in place.

        ``pause`` makes a context manager; inside it the engine leaves its weights alone. ``threads``:
        how many may decode and write at once; None: one for each processor, but at most 8. Raises
        ``InputError`` naming the first tensor that does not fit.
        """
        core = self._core.reader(tensors, pause=None if pause is None else _as_async(pause), threads=threads)
        return Reader(self._loop.run(core), self._loop)

    def close(self) -> None:
        """Wait for what writers have in the background, then release store and event loop."""
        if not self._loop.closed:
            self._loop.run(self._core.close(), last=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Writer:
    """Publishes live tensors. Made by ``Stream.writer``."""

    def __init__(self, core: AsyncWriter, loop: LentLoop) -> None:
        self._core = core
        self._loop = loop

    @property
    def version(self) -> int | None:
        """The version that the next delta is based on; None when the next version will be an anchor."""
        return self._core.version

    @property
    def epoch(self) -> int:
        """The number of this incarnation."""
        return self._core.epoch

    def publish(
        self,
        *,
        version: int | None = None,
        step: SupportsIndex | None = None,
        metadata: Metadata | None = None,
        anchor: bool = False,
    ) -> Published:
        """Commit the tensors as they are now as a new version; see ``AsyncWriter.publish``."""
        return self._loop.run(
            self._core.publish(version=version, step=step, metadata=metadata, anchor=anchor)
        )

    def attach(self, optimizer: Any) -> None:
        """Find changes by inverting the steps of ``optimizer``; see ``AsyncWriter.attach``."""
        self._loop.run(self._core.attach(optimizer))

    def mark(self, marks: MarksByName) -> None:
        """These elements may have changed; for ``detector="external"``. See ``AsyncWriter.mark``."""
        self._core.mark(marks)

    def publish_async(
        self,
        *,
        version: int | None = None,
        step: SupportsIndex | None = None,
        metadata: Metadata | None = None,
        anchor: bool = False,
    ) -> Pending:
        """As ``publish``, but return as soon as the tensors may change again; see ``AsyncWriter``.

        The first call gives the stream's event loop a thread of its own, which uploads between calls.
        """
        core = self._core.publish_async(version=version, step=step, metadata=metadata, anchor=anchor)
        return Pending(self._loop.run(core, moved=True), self._loop)

    def close(self) -> None:
        """Wait for what ``publish_async`` left to do; raises what it met. ``Stream.close`` does so too."""
        self._loop.run(self._core.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Pending:
    """A version that is on its way. Made by ``Writer.publish_async``."""

    def __init__(self, core: Publishing, loop: LentLoop) -> None:
        self._core = core
        self._loop = loop

    @property
    def done(self) -> bool:
        """Whether the version is committed, or has failed."""
        return self._core.done

    def result(self) -> Published:
        """Wait until it is committed; raises what it met instead."""

        async def wait() -> Published:
            return await self._core

        return self._loop.run(wait())


class Reader:
    """Keeps live tensors at a version. Made by ``Stream.reader``."""

    def __init__(self, core: AsyncReader, loop: LentLoop) -> None:
        self._core = core
        self._loop = loop

    @property
    def version(self) -> int | None:
        """The version in memory; None before the first ``sync``, and while torn."""
        return self._core.version

    @property
    def torn(self) -> bool:
        """Whether the live weights are of no version because an apply stopped half way."""
        return self._core.torn

    @property
    def newest(self) -> int:
        """The newest version seen in the log."""
        return self._core.newest

    def poll(self) -> bool:
        """Look for new records; True when there is something to ``sync``."""
        return self._loop.run(self._core.poll())

    def wait(self, *, timeout: float | None = None, interval: float = 0.05) -> bool:
        """Poll every ``interval`` seconds until there is something to sync; False after ``timeout`` ones."""
        return self._loop.run(self._core.wait(timeout=timeout, interval=interval))

    def sync(self, version: int | None = None) -> Synced:
        """Bring the tensors to ``version``, or to the newest one; see ``AsyncReader.sync``."""
        return self._loop.run(self._core.sync(version))

    def verify(self) -> bool:
        """Whether the tensors are exactly those of ``version``; see ``AsyncReader.verify``."""
        return self._loop.run(self._core.verify())


def _as_async(pause: SyncPause) -> Pause:
    @asynccontextmanager
    async def paused() -> AsyncIterator[None]:
        with pause():
            yield

    return paused


def _started(work: Callable[[], Coroutine[Any, Any, AsyncStream]]) -> Stream:
    loop = LentLoop()
    try:
        return Stream(loop.run(work()), loop)
    except BaseException:
        loop.close()
        raise


def open(url: str | os.PathLike[str] | Store, *, wait: float = 0.0, single_writer: bool = False) -> Stream:
    """The stream at ``url`` (``file://``, ``s3://``, ``memory://``, ... or a path).

    ``wait``: for so many seconds it may yet be made, and get its first version. Raises ``NotFoundError``:
    ``no_stream``, or after waiting in vain ``no_version``. ``single_writer``: see ``AsyncStream.open``.
    """
    return _started(lambda: AsyncStream.open(url, wait=wait, single_writer=single_writer))


def create(
    url: str | os.PathLike[str] | Store,
    tensors: LiveTensors,
    *,
    cast: str | None = None,
    metadata: Metadata | None = None,
    label: str = "",
    single_writer: bool = False,
) -> Stream:
    """A new stream whose version 0 is ``tensors``, stored whole; ``ConflictError("exists")``.

    ``cast="BF16"`` stores F32 tensors as BF16, rounded to nearest even.
    """
    return _started(
        lambda: AsyncStream.create(
            url, tensors, cast=cast, metadata=metadata, label=label, single_writer=single_writer
        )
    )
