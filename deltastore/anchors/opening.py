"""Opening an anchor: its inventory and all metadata, fetched and checked before any weights."""

from __future__ import annotations

from dataclasses import dataclass

from deltastore.anchors.decoding import most_bytes
from deltastore.anchors.inventory import fetch_inventory, fetch_object
from deltastore.anchors.sharding import ShardGrid, array_path
from deltastore.anchors.zarr_metadata import METADATA_KEY, check_group, read_shards
from deltastore.errors import CorruptError
from deltastore.format.inventory import InventoryObject
from deltastore.format.limits import TABLE_BYTES
from deltastore.format.records import AnchorRef
from deltastore.format.table import TensorTable
from deltastore.stores.base import Store

__all__ = ["OpenedAnchor", "open_anchor"]


@dataclass(frozen=True, slots=True)
class OpenedAnchor:
    """What an anchor's objects are: inventory entries by key relative to ``prefix``, and the arrays' shards.

    ``nbytes`` were fetched for it in ``requests``.
    """

    prefix: str
    entries: dict[str, InventoryObject]
    grids: list[ShardGrid]
    nbytes: int
    requests: int


async def open_anchor(store: Store, version: int, ref: AnchorRef, table: TensorTable) -> OpenedAnchor:
    """Fetch and check the inventory and all metadata; no weights are fetched yet.

    Raises ``CorruptError``: ``lost_object``, ``too_large``, ``bad_length``, ``bad_hash``, ``bad_json``
    for the objects, ``bad_anchor`` for an anchor that does not hold exactly the shards of ``table``.
    """
    prefix = ref.prefix(version)
    entries = await fetch_inventory(store, version, ref)
    metadata = _Metadata(store, prefix, entries)
    check_group(await metadata.fetch(METADATA_KEY), table, version, prefix + METADATA_KEY)
    grids: list[ShardGrid] = []
    wanted = {METADATA_KEY}
    for number, array in enumerate(table.arrays):
        key = f"{array_path(number)}/{METADATA_KEY}"
        grid = read_shards(await metadata.fetch(key), array, prefix + key)
        wanted.add(key)
        most = most_bytes(grid, array.element)
        wanted.update(_check_shards(prefix, array_path(number), entries, grid, most))
        grids.append(grid)
    for key in entries:
        if key not in wanted:
            raise _bad(prefix + key, "is in the inventory but is no part of the tensor table")
    requests = 2 + len(grids)
    small = (METADATA_KEY, *(f"{array_path(number)}/{METADATA_KEY}" for number in range(len(grids))))
    nbytes = ref.inventory_bytes + sum(entries[key].bytes for key in small)
    return OpenedAnchor(prefix, entries, grids, nbytes, requests)


class _Metadata:
    """Fetches metadata objects, which are small: their limit is that of the table that they repeat."""

    def __init__(self, store: Store, prefix: str, entries: dict[str, InventoryObject]) -> None:
        self._store = store
        self._prefix = prefix
        self._entries = entries

    async def fetch(self, key: str) -> bytes:
        entry = self._entries.get(key)
        if entry is None:
            raise _bad(self._prefix + key, "is not in the inventory")
        if entry.bytes > TABLE_BYTES:
            raise _bad(self._prefix + key, f"has {entry.bytes} bytes, above {TABLE_BYTES}")
        return await fetch_object(self._store, self._prefix, entry)


def _check_shards(
    prefix: str, path: str, entries: dict[str, InventoryObject], grid: ShardGrid, most: int
) -> list[str]:
    """The keys of an array's shards, all of which the inventory lists, none longer than it can be."""
    keys = []
    for shard in range(len(grid.shards)):
        key = f"{path}/{grid.key(shard)}"
        entry = entries.get(key)
        if entry is None:
            raise _bad(prefix + key, "is not in the inventory")
        if entry.bytes > most:
            raise _bad(prefix + key, f"has {entry.bytes} bytes where all its chunks need {most}")
        keys.append(key)
    return keys


def _bad(where: str, problem: str) -> CorruptError:
    return CorruptError("bad_anchor", f"{where} {problem}; take another version", where=where)
