"""The sync face of streams."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from deltastore.format.records import Record
from deltastore.layout.cuts import Experts
from deltastore.layout.families.config import AnyConfig
from deltastore.layout.live_parts import PartTensors
from deltastore.layout.memory import LiveTensors
from deltastore.layout.pieces import Layout
from deltastore.lent_loop import LentLoop
from deltastore.log import Manifest
from deltastore.stores.base import Store
from deltastore.stream import AsyncStream
from deltastore.sync.reader import Reader, SyncPause, as_async
from deltastore.sync.writer import Writer
from deltastore.writer.committing import Metadata
from deltastore.writer.opening import TIMEOUT_SECONDS, DetectorName
from deltastore.writer.packing import PACK_TARGET_BYTES, UPLOADS

__all__ = ["Stream", "create", "open"]


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

    def config(self) -> dict[str, Any]:
        """The ``config.json`` that the stream carries; see ``AsyncStream.config``."""
        return self._loop.run(self._core.config())

    def writer(
        self,
        tensors: PartTensors,
        *,
        layout: Layout | None = None,
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
        insists on one. ``layout``: ``tensors`` are parameters instead, named, fused and cut as it says; see
        ``deltastore.layouts``. ``cast``: F32 tensors may stand for BF16 or F16 ones. ``label`` names the
        trainer in the log. ``threads``: how many may compare and encode at once; None: one for each
        processor, but at most 8. ``rank``, ``writers``, ``run``, ``timeout``: see ``open_writer``; several
        processes publish together, each the elements that it holds. ``optimizer``: a ``torch.optim.AdamW``
        over FP32 ``tensors``; its steps are inverted, and no copy of the weights is made (see
        ``AsyncWriter.attach``). ``detector="external"``: ``Writer.mark`` says what changes. Raises
        ``InputError`` naming the first tensor, or parameter, that does not fit.
        """
        core = self._core.writer(
            tensors,
            layout=layout,
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
        self,
        tensors: LiveTensors,
        *,
        layout: Layout | None = None,
        pause: SyncPause | None = None,
        threads: int | None = None,
    ) -> Reader:
        """A reader that writes versions into ``tensors``, in place.

        ``layout``: how this process holds the model; ``tensors`` are its parameters by their own names then,
        and only what they need is fetched.
        ``pause`` makes a context manager; inside it the engine leaves its weights alone. ``threads``:
        how many may decode and write at once; None: one for each processor, but at most 8. Raises
        ``InputError`` naming the first tensor that does not fit.
        """
        core = self._core.reader(
            tensors, layout=layout, pause=None if pause is None else as_async(pause), threads=threads
        )
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
    layout: Layout | None = None,
    config: AnyConfig | None = None,
    slabs: int | None = None,
    moe: Experts | None = None,
    cast: str | None = None,
    metadata: Metadata | None = None,
    label: str = "",
    single_writer: bool = False,
) -> Stream:
    """A new stream whose version 0 is ``tensors``, stored whole; ``ConflictError("exists")``.

    ``layout``: ``tensors`` are parameters instead, named and fused as it says, of the whole model.
    ``config``: a Hugging Face configuration (mapping or path); weights are then cut for readers of a shard,
    as ``slabs`` (default 8) and ``moe`` ("ep" or "tp") say: see ``AsyncStream.create``.
    ``cast="BF16"`` stores F32 tensors as BF16, rounded to nearest even.
    """
    return _started(
        lambda: AsyncStream.create(
            url,
            tensors,
            layout=layout,
            config=config,
            slabs=slabs,
            moe=moe,
            cast=cast,
            metadata=metadata,
            label=label,
            single_writer=single_writer,
        )
    )
