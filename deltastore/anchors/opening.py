"""Opening an anchor: its inventory and all metadata, fetched and checked before any weights."""

from __future__ import annotations

from dataclasses import dataclass

from deltastore.anchors.chunk_sums import SUMS_KEY, sums_bytes
from deltastore.anchors.inventory import fetch_inventory, fetch_object
from deltastore.anchors.shard_rules import most_bytes
from deltastore.anchors.sharding import ShardGrid, array_path
from deltastore.anchors.zarr_metadata import METADATA_KEY, check_group, read_shards
from deltastore.errors import CorruptError
from deltastore.format.limits import SUMS_BYTES, TABLE_BYTES
from deltastore.format.listed import ListedObject
from deltastore.format.records import AnchorRef
from deltastore.format.table import TensorTable
from deltastore.stores.base import Store

__all__ = ["OpenedAnchor", "open_anchor"]


@dataclass(frozen=True, slots=True)
class OpenedAnchor:
    """What an anchor's objects are: inventory entries by key relative to ``prefix``, and the arrays' shards.

    ``sums``: the entry of the object of sums, which is none of ``entries``. ``nbytes`` were fetched for all
    this in ``requests``.
    """

    prefix: str
    entries: dict[str, ListedObject]
    sums: ListedObject | None
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
    sums = _sums_entry(prefix, entries.pop(SUMS_KEY, None), table)
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
            raise _bad("DS072", prefix + key, "is in the inventory but is no part of the tensor table")
    requests = 2 + len(grids)
    small = (METADATA_KEY, *(f"{array_path(number)}/{METADATA_KEY}" for number in range(len(grids))))
    nbytes = ref.inventory_bytes + sum(entries[key].bytes for key in small)
    return OpenedAnchor(prefix, entries, sums, grids, nbytes, requests)


class _Metadata:
    """Fetches metadata objects, which are small: their limit is that of the table that they repeat."""

    def __init__(self, store: Store, prefix: str, entries: dict[str, ListedObject]) -> None:
        self._store = store
        self._prefix = prefix
        self._entries = entries

    async def fetch(self, key: str) -> bytes:
        entry = self._entries.get(key)
        if entry is None:
            raise _bad("DS072", self._prefix + key, "is not in the inventory")
        if entry.bytes > TABLE_BYTES:
            raise _bad("DS100", self._prefix + key, f"has {entry.bytes} bytes, above {TABLE_BYTES}")
        return await fetch_object(self._store, self._prefix, entry)


def _sums_entry(prefix: str, entry: ListedObject | None, table: TensorTable) -> ListedObject | None:
    """The object of sums, if the anchor has one; its length is known before it is fetched."""
    if entry is None:
        return None
    where, wanted = prefix + SUMS_KEY, sums_bytes(table)
    if entry.bytes > SUMS_BYTES:
        raise _bad("DS100", where, f"has {entry.bytes} bytes, above {SUMS_BYTES}")
    if entry.bytes != wanted:
        raise _bad("DS074", where, f"has {entry.bytes} bytes where the chunks of the table need {wanted}")
    return entry


def _check_shards(
    prefix: str, path: str, entries: dict[str, ListedObject], grid: ShardGrid, most: int
) -> list[str]:
    """The keys of an array's shards, all of which the inventory lists, none longer than it can be."""
    keys = []
    for shard in range(len(grid.shards)):
        key = f"{path}/{grid.key(shard)}"
        entry = entries.get(key)
        if entry is None:
            raise _bad("DS072", prefix + key, "is not in the inventory")
        if entry.bytes > most:
            raise _bad("DS071", prefix + key, f"has {entry.bytes} bytes where all its chunks need {most}")
        keys.append(key)
    return keys


def _bad(rule: str, where: str, problem: str) -> CorruptError:
    return CorruptError("bad_anchor", f"{where} {problem}; take another version", where=where, rule=rule)
