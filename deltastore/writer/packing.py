"""From changes to uploaded packs, in a stream: few packs are in memory, however large the delta is."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from deltastore.anchors.writing import Progress
from deltastore.errors import InputError
from deltastore.format.digest import MODULUS
from deltastore.format.limits import PACK_BYTES, PACKS_PER_VERSION, ROWS_PER_PACK
from deltastore.format.pack import Pack, PackBuilder, pack_key
from deltastore.format.records import Certificate, PackRef
from deltastore.format.table import TensorTable
from deltastore.kernels.rows import ROW, EncodedPatches, chunks_of, offsets_of
from deltastore.stores.base import Store

__all__ = [
    "PACK_SPLIT_BYTES",
    "PACK_TARGET_BYTES",
    "UPLOADS",
    "Packing",
    "Progress",
    "Uploaded",
    "upload_changes",
]

PACK_TARGET_BYTES: Final = 32 << 20
"""A pack is closed once it is this large: a good size for object stores."""

PACK_SPLIT_BYTES: Final = 1 << 20
"""A pack that is this large ends where its slab does, so that readers of one slab get packs of their own.

To fetch so much takes about as long as an object store takes to answer at all: a request more costs a reader
less than what it would skip. Smaller slabs share a pack.
"""

UPLOADS: Final = 4
"""Packs that may be in memory at once: one is built while the others are on their way."""

_LAST_PATCH_BYTES: Final = 4 << 20
"""What the patch that crosses the target may add to a pack, as a rule."""

_MAX_TARGET: Final = PACK_BYTES // 2
"""So that a pack is within its limit when its last patch crosses the target."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How packs are made: closed at ``target_bytes``, and up to ``uploads`` of them put at once.

    A publish takes about ``target_bytes * uploads`` of memory beyond what detection needs. ``writers``: how
    many processes publish a version together. Raises ``InputError("bad_argument")`` for numbers out of range.
    """

    target_bytes: int = PACK_TARGET_BYTES
    uploads: int = UPLOADS
    writers: int = 1

    def __post_init__(self) -> None:
        _check_between("pack_bytes", self.target_bytes, _MAX_TARGET)
        _check_between("uploads", self.uploads, 256)

    def target(self, packs: int) -> int:
        """Where the next pack is closed: it grows along the way, so that no version runs out of packs."""
        return min(self.target_bytes << (packs * self.writers * 4 // PACKS_PER_VERSION), _MAX_TARGET)

    def split(self, packs: int) -> int:
        """From what size on the next pack ends with its slab; a quarter of all that may be are for this."""
        few = packs * self.writers * 4 < PACKS_PER_VERSION
        return min(PACK_SPLIT_BYTES, self.target_bytes) if few else _MAX_TARGET


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
    uploader = _Uploader(store, version, packing.uploads)
    filling = _Filling(table, uploader, packing, version, bytes.fromhex(nonce), progress)
    try:
        async for patches in changes:
            await filling.add(patches)
            del patches  # else it would be there beside the next one
        filling.close()
        if found is not None:
            found()
        await uploader.drain()
    except BaseException:
        await uploader.abandon()
        raise
    finally:
        await changes.aclose()
    return filling.result


class _Filling:
    """Patches in pack order become packs, which are handed to the uploader one after another."""

    def __init__(
        self,
        table: TensorTable,
        uploader: _Uploader,
        packing: Packing,
        version: int,
        nonce: bytes,
        progress: Progress | None,
    ) -> None:
        self.result = Uploaded()
        self._table = table
        self._uploader = uploader
        self._packing = packing
        self._version = version
        self._nonce = nonce
        self._progress = progress
        self._builder: PackBuilder | None = None
        self._target = packing.target_bytes
        self._slab = 0

    async def add(self, patches: EncodedPatches) -> None:
        """Add a batch, of any number of slabs."""
        self.result.count(patches)
        if len(patches.rows) == 0:
            return
        slabs = self._table.slabs_of(chunks_of(patches.rows))
        edges = [0, *(np.flatnonzero(np.diff(slabs)) + 1).tolist(), len(slabs)]
        offsets = offsets_of(patches.rows)
        for start, end in itertools.pairwise(edges):
            self._enter(int(slabs[start]))
            while start < end:
                start = await self._fill(patches, offsets, start, end)

    def _enter(self, slab: int) -> None:
        """What follows is of this slab. Ends the pack if it is large enough to be one of the slabs before."""
        size = 0 if self._builder is None else self._builder.size
        if slab != self._slab and size >= self._packing.split(len(self.result.packs)):
            self.close()
        self._slab = slab

    async def _fill(self, patches: EncodedPatches, offsets: NDArray[np.int64], start: int, end: int) -> int:
        """Add patches from number ``start`` on until the pack is full; returns the next number."""
        builder = self._builder
        if builder is None:
            await self._uploader.room()
            self._target = self._packing.target(len(self.result.packs))
            builder = PackBuilder(self._version, self._nonce, capacity=self._target + _LAST_PATCH_BYTES)
            self._builder = builder
        sizes = np.cumsum(patches.rows["length"][start:end].astype(np.int64) + ROW.itemsize)
        room = min(int(np.searchsorted(sizes, self._target - builder.size)) + 1, ROWS_PER_PACK - len(builder))
        end = min(start + room, end)
        body = patches.body[offsets[start] : offsets[end]]
        builder.extend((self._slab, self._slab), patches.rows[start:end], body)
        if builder.size >= self._target or len(builder) == ROWS_PER_PACK:
            self.close()
        return end

    def close(self) -> None:
        """End the pack, if one is begun."""
        if self._builder is None:
            return
        pack = self._builder.finish()
        self._builder = None
        self.result.packs.append(self._uploader.submit(pack))
        if self._progress is not None:
            self._progress(len(pack.data))
