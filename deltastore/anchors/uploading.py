"""Putting the objects of an anchor, and remembering what was put: its inventory."""

from __future__ import annotations

import asyncio

from deltastore.anchors.inventory import INVENTORY_KEY
from deltastore.errors import InputError
from deltastore.format.canonical import sha256_hex
from deltastore.format.inventory import Inventory, InventoryObject
from deltastore.format.limits import INVENTORY_BYTES
from deltastore.format.records import AnchorRef
from deltastore.stores.base import Store

__all__ = ["Uploading"]


class Uploading:
    """The objects under one anchor's prefix, while they are put."""

    def __init__(self, store: Store, version: int, attempt: str) -> None:
        self._store = store
        self._attempt = attempt
        self._prefix = self._ref("0" * 64, 1).prefix(version)
        self._entries: list[InventoryObject] = []

    async def put(self, key: str, data: bytes) -> None:
        """Put one object, durable on return, under ``key`` relative to the prefix."""
        sha256 = await asyncio.to_thread(sha256_hex, data)
        await self._store.put(self._prefix + key, data)
        self._entries.append(InventoryObject(key=key, bytes=len(data), sha256=sha256))

    async def finish(self) -> AnchorRef:
        """Put the inventory of all that was put, and return what names it."""
        objects = tuple(sorted(self._entries, key=lambda entry: entry.key))
        inventory = Inventory.seal_new(objects=objects)
        data = inventory.to_bytes()
        if len(data) > INVENTORY_BYTES:
            message = f"an inventory of {len(data)} bytes, above {INVENTORY_BYTES}: cut larger chunks"
            raise InputError("bad_argument", message)
        await self._store.put(self._prefix + INVENTORY_KEY, data)
        return self._ref(inventory.sha256, len(data))

    def _ref(self, sha256: str, nbytes: int) -> AnchorRef:
        return AnchorRef(attempt=self._attempt, inventory_sha256=sha256, inventory_bytes=nbytes)
