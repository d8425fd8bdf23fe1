"""The inventory of an anchor: what its objects are, and fetching one so that it is the one meant."""

from __future__ import annotations

from typing import Final

from deltastore.errors import CorruptError
from deltastore.format.listed import ListedObject, read_inventory
from deltastore.format.records import AnchorRef
from deltastore.stores.base import Store
from deltastore.stores.named import fetch_named, fetch_sized

__all__ = ["INVENTORY_KEY", "fetch_inventory", "fetch_object"]

INVENTORY_KEY: Final = "inventory.json"


async def fetch_inventory(store: Store, version: int, ref: AnchorRef) -> dict[str, ListedObject]:
    """The objects that the record's inventory names, by key relative to the anchor's prefix.

    Raises ``CorruptError``: ``lost_object``, ``too_large``, ``bad_length``, ``bad_hash``, ``bad_json``.
    """
    key = ref.prefix(version) + INVENTORY_KEY
    data = await fetch_sized(
        store, key, nbytes=ref.inventory_bytes, named_by=f"the record of version {version}", rule="DS072"
    )
    sha256, objects = read_inventory(data, key)
    if sha256 != ref.inventory_sha256:
        message = f"{key} is not the inventory that the record of version {version} names"
        raise CorruptError("bad_hash", message, where=key, rule="DS072")
    return objects


async def fetch_object(store: Store, prefix: str, entry: ListedObject) -> bytes:
    """One whole object, checked against its inventory entry before anything looks at it.

    Raises ``CorruptError``: ``lost_object``, ``too_large``, ``bad_length``, ``bad_hash``.
    """
    key = prefix + entry.key
    return await fetch_named(
        store, key, nbytes=entry.bytes, sha256=entry.sha256, named_by="its inventory", rule="DS073"
    )
