"""Weights as an anchor: a Zarr v3 group, put into any store shard by shard (SPEC section "Anchors")."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable

import numpy as np

from deltastore.anchors.encoding import ShardEncoder
from deltastore.anchors.inventory import INVENTORY_KEY
from deltastore.anchors.sharding import ShardGrid, array_path, plan_shards
from deltastore.anchors.together import together
from deltastore.anchors.zarr_metadata import METADATA_KEY, array_metadata, group_metadata, metadata_bytes
from deltastore.errors import InputError
from deltastore.format.canonical import sha256_hex
from deltastore.format.limits import INVENTORY_BYTES, INVENTORY_OBJECTS
from deltastore.format.records import AnchorRef, Inventory, InventoryObject
from deltastore.layout.weights import Bits, Weights
from deltastore.stores.base import Store

__all__ = ["write_anchor"]

Progress = Callable[[int], None]


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

    ``attempt`` is 32 hexadecimal digits, random if not given. All objects are durable on return, the inventory
    last; nothing refers to them until a record does. ``uploads`` shards are on their way at a time, the next
    one being encoded among them. Memory: about 64 MiB for each, and 128 MiB. ``progress`` is called with the
    bytes of weights just put.

    Raises ``InputError("bad_argument")`` for a model of too many objects or a bad ``uploads``, and what the
    weights and the store raise.
    """
    if uploads < 1:
        raise InputError("bad_argument", f"uploads is {uploads}; give 1 or more")
    grids = [plan_shards(array) for array in weights.table.arrays]
    _check_count(grids)
    ref = AnchorRef(attempt=attempt or secrets.token_hex(16), inventory_sha256="0" * 64, inventory_bytes=1)
    upload = _Upload(store, ref.prefix(version))
    await upload.put(METADATA_KEY, metadata_bytes(group_metadata(weights.table, version)))
    room = asyncio.Semaphore(uploads)
    async with together() as group:
        for number, grid in enumerate(grids):
            path = array_path(number)
            metadata = metadata_bytes(array_metadata(weights.table.arrays[number], grid))
            await upload.put(f"{path}/{METADATA_KEY}", metadata)
            encoder = await ShardEncoder.open(weights.table.arrays[number], grid)
            for shard in range(len(grid.shards)):
                await room.acquire()
                bits = await _gather(weights, number, grid, shard)
                nbytes = bits.nbytes
                encoded = await encoder.encode(shard, bits)
                del bits
                put = upload.put_shard(f"{path}/{grid.key(shard)}", encoded, room, nbytes, progress)
                del encoded
                group.create_task(put)
    inventory = upload.inventory()
    data = inventory.to_bytes()
    if len(data) > INVENTORY_BYTES:
        raise InputError("bad_argument", f"an inventory of {len(data)} bytes, above {INVENTORY_BYTES}")
    await store.put(ref.prefix(version) + INVENTORY_KEY, data)
    return AnchorRef(attempt=ref.attempt, inventory_sha256=inventory.sha256, inventory_bytes=len(data))
