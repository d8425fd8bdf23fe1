"""The inventory of an anchor: what its objects are, and fetching one so that it is the one meant."""

from __future__ import annotations

from typing import Final

from deltastore.errors import CorruptError, NotFoundError
from deltastore.format.inventory import Inventory, InventoryObject
from deltastore.format.records import AnchorRef
from deltastore.stores.base import Store
from deltastore.stores.named import fetch_named, lost_object

__all__ = ["INVENTORY_KEY", "fetch_inventory", "fetch_object"]

INVENTORY_KEY: Final = "inventory.json"


async def fetch_inventory(store: Store, version: int, ref: AnchorRef) -> dict[str, InventoryObject]:
    """The objects that the record's inventory names, by key relative to the anchor's prefix.

    Raises ``CorruptError``: ``lost_object``, ``too_large``, ``bad_length``, ``bad_hash``, ``bad_json``.
    """
    key = ref.prefix(version) + INVENTORY_KEY
    try:
        data = await store.get(key, limit=ref.inventory_bytes)
    except NotFoundError:
        raise lost_object(key, f"the record of version {version}") from None
    if len(data) != ref.inventory_bytes:
        message = (
            f"{key} has {len(data)} bytes where the record of version {version} names {ref.inventory_bytes}"
        )
        raise CorruptError("bad_length", message, where=key)
    inventory = Inventory.from_bytes(data, key)
    if inventory.sha256 != ref.inventory_sha256:
        message = f"{key} is not the inventory that the record of version {version} names"
        raise CorruptError("bad_hash", message, where=key)
    return {entry.key: entry for entry in inventory.objects}


async def fetch_object(store: Store, prefix: str, entry: InventoryObject) -> bytes:
    """One whole object, checked against its inventory entry before anything looks at it.

    Raises ``CorruptError``: ``lost_object``, ``too_large``, ``bad_length``, ``bad_hash``.
    """
    key = prefix + entry.key
    return await fetch_named(store, key, nbytes=entry.bytes, sha256=entry.sha256, named_by="its inventory")
