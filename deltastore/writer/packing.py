"""From changes to uploaded packs, in a stream: few packs are in memory, however large the delta is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from deltastore.anchors.writing import Progress
from deltastore.errors import InputError
from deltastore.format.digest import MODULUS
from deltastore.format.limits import PACK_BYTES, PACKS_PER_VERSION, ROWS_PER_PACK
from deltastore.format.pack import Pack, PackBuilder, pack_key
from deltastore.format.records import Certificate, PackRef
from deltastore.format.table import TensorTable
from deltastore.kernels.rows import ROW, EncodedPatches, chunks_of, offsets_of
from deltastore.stores.base import Store

__all__ = ["PACK_TARGET_BYTES", "UPLOADS", "Packing", "Progress", "Uploaded", "upload_changes"]

PACK_TARGET_BYTES: Final = 32 << 20
"""A pack is closed once it is this large: a good size for object stores."""

UPLOADS: Final = 4
"""Packs that may be in memory at once: one is built while the others are on their way."""

_LAST_PATCH_BYTES: Final = 4 << 20
"""What the patch that crosses the target may add to a pack, as a rule."""

_MAX_TARGET: Final = PACK_BYTES // 2
"""So that a pack is within its limit when its last patch crosses the target."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How packs are made: closed at ``target_bytes``, and up to ``uploads`` of them put at once.

    A publish takes about ``target_bytes * uploads`` of memory beyond what detection needs. Raises
    ``InputError("bad_argument")`` for numbers out of range.
    """

    target_bytes: int = PACK_TARGET_BYTES
    uploads: int = UPLOADS

    def __post_init__(self) -> None:
        _check_between("pack_bytes", self.target_bytes, _MAX_TARGET)
        _check_between("uploads", self.uploads, 256)

    def target(self, packs: int) -> int:
        """Where the next pack is closed: it grows along the way, so that no version runs out of packs."""
        return min(self.target_bytes << (packs * 4 // PACKS_PER_VERSION), _MAX_TARGET)


def _check_between(name: str, value: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise InputError("bad_argument", f"{name} is an integer from 1 to {most}, not {value!r}")


@dataclass(slots=True)
class Uploaded:
    """What a round of detection became: packs that are durable but not yet named by any record."""

    packs: list[PackRef] = field(default_factory=list)
    changed: int = 0
    difference: int = 0
    certificate: Certificate | None = None

    def count(self, patches: EncodedPatches) -> None:
        """Take note of a batch of the round."""
        self.changed += int(patches.changed.sum(dtype=np.uint64))
        self.difference = (self.difference + int(patches.rows["difference"].sum(dtype=np.uint64))) % MODULUS

    @property
    def nbytes(self) -> int:
        """Bytes of all packs."""
        return sum(pack.bytes for pack in self.packs)


class _Uploader:
    """Puts finished packs, a few at once, while the next one is being built."""

    def __init__(self, store: Store, version: int, uploads: int) -> None:
        self._store = store
        self._version = version
        self._room = asyncio.Semaphore(uploads)
        self._running: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    async def room(self) -> None:
        """Wait until one more pack may be in memory, as it is built or sent; raises what an upload raised."""
        await self._room.acquire()
        self._check()

    def submit(self, pack: Pack) -> PackRef:
        task = asyncio.create_task(self._store.put(pack_key(self._version, pack.sha256), pack.data))
        self._running.add(task)
        task.add_done_callback(self._ended)
        return PackRef(
            sha256=pack.sha256,
            bytes=len(pack.data),
            index_sha256=pack.index_sha256,
            rows=pack.rows,
            count=pack.count,
            slabs=pack.slabs,
        )

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._room.release()
        if not task.cancelled() and task.exception() is not None and self._failure is None:
            self._failure = task.exception()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def drain(self) -> None:
        """Wait until everything submitted is durable; raises what an upload raised."""
        while self._running:
            await asyncio.wait(self._running)
            await asyncio.sleep(0)  # for the callbacks of what has ended
        self._check()

    async def abandon(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


async def upload_changes(
    store: Store,
    table: TensorTable,
    changes: AsyncGenerator[EncodedPatches],
    version: int,
    nonce: str,
    *,
    packing: Packing,
    progress: Progress | None = None,
    found: Callable[[], None] | None = None,
) -> Uploaded:
    """Upload one round of ``changes``, and close it; on return every pack is durable.

    ``found`` is called once when all changes are found: from then on the weights may change. ``progress`` is
    called with the bytes of each pack as it is handed to the store.
    """
    result = Uploaded()
    uploader = _Uploader(store, version, packing.uploads)
    try:
        builder: PackBuilder | None = None
        target = packing.target_bytes
        async for patches in changes:
            result.count(patches)
            start = 0
            while start < len(patches.rows):
                if builder is None:
                    await uploader.room()
                    target = packing.target(len(result.packs))
                    builder = PackBuilder(version, bytes.fromhex(nonce), capacity=target + _LAST_PATCH_BYTES)
                start = _fill(builder, table, patches, start, target)
                if builder.size >= target or len(builder) == ROWS_PER_PACK:
                    _close(builder, uploader, result, progress)
                    builder = None
            del patches  # else it would be there beside the next one
        if builder is not None:
            _close(builder, uploader, result, progress)
        if found is not None:
            found()
        await uploader.drain()
    except BaseException:
        await uploader.abandon()
        raise
    finally:
        await changes.aclose()
    return result


def _fill(builder: PackBuilder, table: TensorTable, patches: EncodedPatches, start: int, target: int) -> int:
    """Add patches from number ``start`` on until the pack has ``target`` bytes; returns the next number."""
    offsets = offsets_of(patches.rows)
    sizes = np.cumsum(patches.rows["length"][start:].astype(np.int64) + ROW.itemsize)
    room = min(int(np.searchsorted(sizes, target - builder.size)) + 1, ROWS_PER_PACK - len(builder))
    end = min(start + room, len(patches.rows))
    rows = patches.rows[start:end]
    first, last = table.slabs_of(chunks_of(rows[[0, -1]])).tolist()
    builder.extend((first, last), rows, patches.body[offsets[start] : offsets[end]])
    return end


def _close(builder: PackBuilder, uploader: _Uploader, result: Uploaded, progress: Progress | None) -> None:
    pack = builder.finish()
    result.packs.append(uploader.submit(pack))
    if progress is not None:
        progress(len(pack.data))
