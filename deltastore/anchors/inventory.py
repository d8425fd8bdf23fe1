"""The inventory of an anchor: what its objects are, and fetching one so that it is the one meant."""

from __future__ import annotations

import asyncio
from typing import Final

from deltastore.errors import CorruptError, NotFoundError
from deltastore.format.canonical import sha256_hex
from deltastore.format.records import AnchorRef, Inventory, InventoryObject
from deltastore.stores.base import Store

__all__ = ["INVENTORY_KEY", "fetch_inventory", "fetch_object"]

INVENTORY_KEY: Final = "inventory.json"


async def fetch_inventory(store: Store, version: int, ref: AnchorRef) -> dict[str, InventoryObject]:
    """The objects that the record's inventory names, by key relative to the anchor's prefix.

    Raises ``CorruptError``: ``lost_object``, ``too_large``, ``bad_length``, ``bad_hash``, ``bad_json``.
    """
    key = ref.prefix(version) + INVENTORY_KEY
    data = await _get(store, key, ref.inventory_bytes)
    inventory = Inventory.from_bytes(data, key)
    if inventory.sha256 != ref.inventory_sha256:
        raise CorruptError("bad_hash", f"{key} is not the inventory that its record names", where=key)
    return {entry.key: entry for entry in inventory.objects}


async def fetch_object(store: Store, prefix: str, entry: InventoryObject) -> bytes:
    """One whole object, checked against its inventory entry before anything looks at it.

    Raises ``CorruptError``: ``lost_object``, ``too_large``, ``bad_length``, ``bad_hash``.
    """
    key = prefix + entry.key
    data = await _get(store, key, entry.bytes)
    if await asyncio.to_thread(sha256_hex, data) != entry.sha256:
        message = f"{key} does not have the sha256 that its inventory names; take another version"
        raise CorruptError("bad_hash", message, where=key)
    return data


async def _get(store: Store, key: str, size: int) -> bytes:
    try:
        data = await store.get(key, limit=size)
    except NotFoundError:
        message = f"{key} is gone though the anchor names it; take another version"
        raise CorruptError("lost_object", message, where=key) from None
    if len(data) != size:
        message = f"{key} has {len(data)} bytes where the anchor names {size}; take another version"
        raise CorruptError("bad_length", message, where=key)
    return data
