"""From changes to uploaded packs, in a stream: at most two packs are in memory."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from deltastore.anchors.writing import Progress
from deltastore.detect.changes import Detector
from deltastore.errors import InputError
from deltastore.format.digest import MODULUS
from deltastore.format.limits import PACK_BYTES, PACKS_PER_VERSION, ROWS_PER_PACK
from deltastore.format.pack import Pack, PackBuilder, pack_key
from deltastore.format.records import PackRef
from deltastore.format.table import TensorTable
from deltastore.kernels.rows import ROW, EncodedPatches, chunks_of, offsets_of
from deltastore.stores.base import Store

__all__ = ["PACK_TARGET_BYTES", "Progress", "Uploaded", "check_pack_bytes", "upload_changes"]

PACK_TARGET_BYTES: Final = 32 << 20
"""A pack is closed once it is this large: a good size for object stores."""

_MAX_TARGET: Final = PACK_BYTES // 2
"""So that a pack is within its limit when its last patch crosses the target."""


def _target(target_bytes: int, packs: int) -> int:
    """The target of the next pack: it doubles along the way, so that no version runs out of packs."""
    return min(target_bytes << (packs * 4 // PACKS_PER_VERSION), _MAX_TARGET)


def check_pack_bytes(pack_bytes: int) -> None:
    """``InputError("bad_argument")`` unless packs may be closed once they are that large."""
    whole = isinstance(pack_bytes, int) and not isinstance(pack_bytes, bool)
    if not whole or not 1 <= pack_bytes <= _MAX_TARGET:
        message = f"pack_bytes is an integer from 1 to {_MAX_TARGET}, not {pack_bytes!r}"
        raise InputError("bad_argument", message)


@dataclass(slots=True)
class Uploaded:
    """What a round of detection became: packs that are durable but not yet named by any record."""

    packs: list[PackRef] = field(default_factory=list)
    changed: int = 0
    difference: int = 0

    def count(self, patches: EncodedPatches) -> None:
        """Take note of a batch of the round."""
        self.changed += int(patches.changed.sum(dtype=np.uint64))
        self.difference = (self.difference + int(patches.rows["difference"].sum(dtype=np.uint64))) % MODULUS

    @property
    def nbytes(self) -> int:
        """Bytes of all packs."""
        return sum(pack.bytes for pack in self.packs)


class _Uploader:
    """Uploads finished packs one after another, while the next one is being built."""

    def __init__(self, store: Store, version: int) -> None:
        self._store = store
        self._version = version
        self._running: asyncio.Task[None] | None = None

    async def submit(self, pack: Pack) -> PackRef:
        await self.drain()
        key = pack_key(self._version, pack.sha256)
        self._running = asyncio.create_task(self._store.put(key, pack.data))
        return PackRef(
            sha256=pack.sha256,
            bytes=len(pack.data),
            index_sha256=pack.index_sha256,
            rows=pack.rows,
            count=pack.count,
            slabs=pack.slabs,
        )

    async def drain(self) -> None:
        """Wait until everything submitted is durable; raises what the upload raised."""
        running, self._running = self._running, None
        if running is not None:
            await running

    async def abandon(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def upload_changes(
    store: Store,
    table: TensorTable,
    detector: Detector,
    version: int,
    nonce: str,
    *,
    target_bytes: int = PACK_TARGET_BYTES,
    progress: Progress | None = None,
) -> Uploaded:
    """Encode and upload one round of ``detector``; on return every pack is durable.

    ``progress`` is called with the bytes of each pack as it is handed to the store.
    """
    result = Uploaded()
    uploader = _Uploader(store, version)
    builder = PackBuilder(version, bytes.fromhex(nonce))
    try:
        async for patches in detector.changes():
            result.count(patches)
            start = 0
            while start < len(patches.rows):
                target = _target(target_bytes, len(result.packs))
                start = _fill(builder, table, patches, start, target)
                if builder.size >= target or len(builder) == ROWS_PER_PACK:
                    await _close(builder, uploader, result, progress)
                    builder = PackBuilder(version, bytes.fromhex(nonce))
        if len(builder):
            await _close(builder, uploader, result, progress)
        await uploader.drain()
    except BaseException:
        await uploader.abandon()
        raise
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


async def _close(
    builder: PackBuilder, uploader: _Uploader, result: Uploaded, progress: Progress | None
) -> None:
    pack = builder.finish()
    result.packs.append(await uploader.submit(pack))
    if progress is not None:
        progress(len(pack.data))
