"""A stream in a store: where writers and readers come from. The async core of the public interface."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Final, Self

from deltastore.carried_config import carried_config
from deltastore.errors import InputError, NotFoundError
from deltastore.format.records import Record
from deltastore.layout.cuts import Experts
from deltastore.layout.families.config import AnyConfig
from deltastore.layout.grids import chosen_grid
from deltastore.layout.laid_weights import LaidWeights, laid_specs
from deltastore.layout.live import LiveWeights, live_specs
from deltastore.layout.live_parts import PartTensors
from deltastore.layout.memory import LiveTensors, check_named
from deltastore.layout.pieces import Layout
from deltastore.layout.weights import Weights
from deltastore.log import Log, Manifest
from deltastore.reader.following import AsyncReader, Pause
from deltastore.reader.opening import open_reader
from deltastore.replay import ReplayedWeights, find_path, read_table
from deltastore.stores.base import Store
from deltastore.stores.open import open_store
from deltastore.stores.single_writer import SingleWriterStore
from deltastore.writer.committing import Metadata
from deltastore.writer.opening import TIMEOUT_SECONDS, DetectorName, open_writer
from deltastore.writer.packing import PACK_TARGET_BYTES, UPLOADS
from deltastore.writer.publishing import AsyncWriter
from deltastore.writer.whole import create_stream

__all__ = ["AsyncStream", "store_of"]

_LOOK_SECONDS: Final = 0.1


class AsyncStream:
    """One policy's sequence of versions.

    ``await AsyncStream.open(url)`` for one that exists, ``await AsyncStream.create(url, tensors)`` for a new
    one. Close it, or use it as an async context manager.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._log = Log(store)
        self._writers: list[AsyncWriter] = []

    @classmethod
    async def open(
        cls, url: str | os.PathLike[str] | Store, *, wait: float = 0.0, single_writer: bool = False
    ) -> Self:
        """The stream at ``url`` (``file://``, ``s3://``, ``memory://``, ... or a path; see ``open_store``).

        ``wait``: for so many seconds it may yet be made, and get its first version. Raises
        ``NotFoundError``: ``no_stream``, or after waiting in vain ``no_version``. ``single_writer``: there
        will never be a second writer, so a store that cannot create conditionally will do; see
        ``SingleWriterStore``.
        """
        stream = cls(store_of(url, single_writer=single_writer))
        deadline = time.monotonic() + wait
        while wait > 0:
            try:
                await stream.newest()
                return stream
            except NotFoundError:
                if time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(_LOOK_SECONDS)
        await stream._log.birth()
        return stream

    @classmethod
    async def create(
        cls,
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
    ) -> Self:
        """A new stream whose version 0 is ``tensors``, stored whole.

        ``layout``: ``tensors`` are parameters instead, named and fused as it says, of the whole model.
        ``config``: a Hugging Face configuration (mapping or path); weights are then cut for readers of a
        shard, ``slabs`` (default 8) and ``moe`` ("ep" or "tp") say for which: see ``slab_table``.
        ``cast="BF16"`` stores F32 tensors as BF16, rounded to nearest even. Raises
        ``ConflictError("exists")`` where there is a stream already. ``single_writer``: as in ``open``.
        """
        check_named(tensors)
        if not tensors:
            raise InputError("bad_argument", "a stream needs at least one tensor: none were given")
        stream = cls(store_of(url, single_writer=single_writer))
        narrow = cast is not None
        if layout is None:
            table = chosen_grid(live_specs(tensors, cast=cast), config, slabs=slabs, moe=moe).table
            weights: Weights = LiveWeights(table, tensors, cast=narrow)
        else:
            table = chosen_grid(laid_specs(layout, cast=cast), config, slabs=slabs, moe=moe).table
            weights = LaidWeights(table, layout, tensors, cast=narrow)
        await create_stream(stream._store, weights, metadata=metadata, label=label)
        return stream

    @property
    def store(self) -> Store:
        """Where the stream is."""
        return self._store

    def records(self) -> AsyncIterator[Record]:
        """Every record from slot 0 on, in order, with the hash chain checked."""
        return self._log.forwards()

    async def newest(self) -> Manifest:
        """The manifest of the newest version; ``NotFoundError("no_version")`` while there is none."""
        return await self._log.newest_manifest()

    async def manifest(self, version: int) -> Manifest:
        """The manifest of ``version``; ``NotFoundError("no_version")``."""
        return await self._log.manifest(version)

    async def config(self) -> dict[str, Any]:
        """The ``config.json`` that the stream carries, for ``deltastore.layouts``; see ``carried_config``."""
        return await carried_config(self._store, await self.newest())

    async def weights(self, version: int | None = None) -> ReplayedWeights:
        """The weights of a version (default: the newest), to be read chunk by chunk."""
        target = await self.newest() if version is None else await self.manifest(version)
        path = await find_path(self._log, target)
        return await ReplayedWeights.open(self._store, path, await read_table(self._store, target.table))

    async def writer(
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
        timeout: float = TIMEOUT_SECONDS,  # noqa: ASYNC109
        optimizer: Any = None,
        detector: DetectorName = "snapshot",
    ) -> AsyncWriter:
        """Begin a new epoch that publishes ``tensors``; see ``open_writer``. Fences every earlier writer."""
        writer = await open_writer(
            self._store,
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
        self._writers.append(writer)
        return writer

    async def reader(
        self,
        tensors: LiveTensors,
        *,
        layout: Layout | None = None,
        pause: Pause | None = None,
        threads: int | None = None,
    ) -> AsyncReader:
        """A reader that writes versions into ``tensors``, in place; see ``open_reader``."""
        return await open_reader(self._store, tensors, layout=layout, pause=pause, threads=threads)

    async def close(self) -> None:
        """Wait for what writers have in the background, then release the store; raises what they met."""
        writers, self._writers = self._writers, []
        try:
            ends = await asyncio.gather(*(writer.close() for writer in writers), return_exceptions=True)
        finally:
            await self._store.close()
        for end in ends:
            if end is not None:
                raise end

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def store_of(url: str | os.PathLike[str] | Store, *, single_writer: bool = False) -> Store:
    """The store that ``url`` names; ``single_writer``: for one that cannot create conditionally."""
    store = url if isinstance(url, Store) else open_store(url)
    return SingleWriterStore(store) if single_writer else store
