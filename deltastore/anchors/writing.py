"""Weights as an anchor: a Zarr v3 group, put into any store shard by shard (SPEC section "Anchors")."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable

import numpy as np

from deltastore.anchors.chunk_sums import SUMS_KEY, CollectedSums
from deltastore.anchors.encoding import ShardEncoder
from deltastore.anchors.sharding import ShardGrid, array_path, plan_shards
from deltastore.anchors.together import together
from deltastore.anchors.uploading import Uploading
from deltastore.anchors.zarr_metadata import METADATA_KEY, array_metadata, group_metadata, metadata_bytes
from deltastore.errors import InputError
from deltastore.format.limits import INVENTORY_OBJECTS
from deltastore.format.records import AnchorRef
from deltastore.layout.weights import Bits, Weights
from deltastore.stores.base import Store

__all__ = ["Progress", "write_anchor"]

Progress = Callable[[int], None]
"""Called with the bytes just done."""


async def write_anchor(
    store: Store,
    version: int,
    weights: Weights,
    *,
    attempt: str | None = None,
    progress: Progress | None = None,
    uploads: int = 2,
) -> AnchorRef:
    """Put the weights whole under ``anchors/<version>/<attempt>/``; return what a record names them by.

    ``attempt`` is 32 lower-case hexadecimal digits, random if not given. All objects are durable on return,
    the inventory last; nothing refers to them until a record does. Up to ``uploads`` shards of about 30 MiB
    are in memory, one of which may be in the making and takes three times that. ``progress`` is called with
    the bytes of weights just put.

    Raises ``InputError("bad_argument")`` for a model of too many objects, a bad ``uploads`` or ``attempt``,
    and what the weights and the store raise.
    """
    if uploads < 1:
        raise InputError("bad_argument", f"uploads is {uploads}; give 1 or more")
    if attempt is not None and re.fullmatch("[0-9a-f]{32}", attempt) is None:
        raise InputError("bad_argument", f"attempt {attempt!r} is not 32 lower-case hexadecimal digits")
    grids = [plan_shards(array) for array in weights.table.arrays]
    count = 2 + sum(1 + len(grid.shards) for grid in grids)
    if count > INVENTORY_OBJECTS:
        message = f"the anchor would have {count} objects, above {INVENTORY_OBJECTS}: cut larger chunks"
        raise InputError("bad_argument", message)
    uploading = Uploading(store, version, attempt or secrets.token_hex(16))
    await uploading.put(METADATA_KEY, metadata_bytes(group_metadata(weights.table, version)))
    sums = await _Writing(uploading, weights, uploads, progress).put_arrays(grids)
    if sums is not None:
        await uploading.put(SUMS_KEY, sums)
    return await uploading.finish()


class _Writing:
    """All arrays of one anchor on their way: encoded one shard after another, put several at a time."""

    def __init__(
        self, uploading: Uploading, weights: Weights, uploads: int, progress: Progress | None
    ) -> None:
        self._uploading = uploading
        self._weights = weights
        self._room = asyncio.Semaphore(uploads)
        self._progress = progress
        self._sums = CollectedSums(weights.table)

    async def put_arrays(self, grids: list[ShardGrid]) -> bytes | None:
        """Put all objects of the arrays; the object of their sums, which is to be put yet."""
        async with together() as group:
            for number, grid in enumerate(grids):
                array = self._weights.table.arrays[number]
                path = array_path(number)
                await self._uploading.put(
                    f"{path}/{METADATA_KEY}", metadata_bytes(array_metadata(array, grid))
                )
                encoder = await ShardEncoder.open(array, grid)
                for shard in range(len(grid.shards)):
                    await self._room.acquire()
                    encoded = await encoder.encode(shard, await self._gather(number, grid, shard))
                    group.create_task(self._put_shard(number, grid, shard, encoded))
                    del encoded  # else it would outlive its upload
        return self._sums.object()

    async def _put_shard(self, number: int, grid: ShardGrid, shard: int, encoded: bytes) -> None:
        await asyncio.to_thread(self._sums.add, number, grid, shard, encoded)
        await self._uploading.put(f"{array_path(number)}/{grid.key(shard)}", encoded)
        if self._progress is not None:
            element = self._weights.table.arrays[number].element
            self._progress(grid.box(shard).elements * element.itemsize)
        self._room.release()

    async def _gather(self, number: int, grid: ShardGrid, shard: int) -> Bits:
        """All elements of a shard, in memory of their own."""
        box = grid.box(shard)
        out = np.empty(box.size, dtype=self._weights.table.arrays[number].element.storage)
        for chunk in grid.inside(shard)[0].tolist():
            part = grid.chunks.box(chunk)
            place = tuple(
                slice(at - origin, at - origin + size)
                for at, origin, size in zip(part.start, box.start, part.size, strict=True)
            )
            out[place] = await self._weights.read(number, chunk)
        return out
