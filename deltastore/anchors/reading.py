"""An anchor as weights: the bits of any chunk, checked before they are looked at (SPEC section "Anchors")."""

from __future__ import annotations

import asyncio
from typing import Self

from deltastore.anchors.ahead import ReadAhead
from deltastore.anchors.decoding import DecodedShard, most_bytes
from deltastore.anchors.inventory import fetch_inventory, fetch_object
from deltastore.anchors.sharding import ShardGrid, array_path
from deltastore.anchors.zarr_metadata import METADATA_KEY, check_group, read_shards
from deltastore.errors import CorruptError, InputError
from deltastore.format.inventory import InventoryObject
from deltastore.format.limits import TABLE_BYTES
from deltastore.format.records import AnchorRef
from deltastore.format.table import TensorTable
from deltastore.layout.weights import Bits
from deltastore.stores.base import Store

__all__ = ["AnchorWeights"]


class AnchorWeights:
    """The weights of an anchor. Memory: the shards last fetched (of about 30 MiB), and the inventory.

    Reading the chunks of an anchor of :func:`write_anchor` in order fetches every object once. Tasks may
    share the weights; they take turns at fetching.
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        table: TensorTable,
        entries: dict[str, InventoryObject],
        grids: list[ShardGrid],
        fetches: int,
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._table = table
        self._entries = entries
        self._grids = grids
        self._turn = asyncio.Lock()
        self._fetches = fetches
        self._ahead = ReadAhead(self._fetch)

    @classmethod
    async def open(
        cls, store: Store, version: int, ref: AnchorRef, table: TensorTable, *, fetches: int = 1
    ) -> Self:
        """Fetch and check the inventory and all metadata; no weights are fetched yet.

        ``fetches`` shards are in memory or on their way: that of the chunk last read and those after it. 1
        suits a reader of some chunks, more a reader of all of them from a distant store, who then calls
        ``close``.

        Raises ``CorruptError``: ``lost_object``, ``too_large``, ``bad_length``, ``bad_hash``, ``bad_json``
        for the objects, ``bad_anchor`` for an anchor that does not hold exactly the shards of ``table``.
        """
        if fetches < 1:
            raise InputError("bad_argument", f"fetches is {fetches}; give 1 or more")
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
        return cls(store, prefix, table, entries, grids, fetches)

    @property
    def table(self) -> TensorTable:
        """The tensors and how they are cut."""
        return self._table

    async def read(self, array: int, chunk: int) -> Bits:
        """One chunk, shape ``box.size``: a read-only view of its shard, which was checked by sha256.

        Raises ``CorruptError``: ``lost_object``, ``too_large``, ``bad_length``, ``bad_hash``, ``bad_anchor``.
        """
        shard, _ = self._grids[array].holder(chunk)
        async with self._turn:
            held = await self._shard(array, shard)
        return held.chunk(chunk)

    async def close(self) -> None:
        """Give up what is still on its way."""
        async with self._turn:
            await self._ahead.close()

    async def _shard(self, array: int, shard: int) -> DecodedShard:
        end = min(shard + self._fetches, len(self._grids[array].shards))
        wanted = [(array, number) for number in range(shard, end)]
        return await self._ahead.get(wanted)

    async def _fetch(self, array: int, shard: int) -> DecodedShard:
        grid = self._grids[array]
        key = f"{array_path(array)}/{grid.key(shard)}"
        data = await fetch_object(self._store, self._prefix, self._entries[key])
        return DecodedShard(data, grid, self._table.arrays[array].element, self._prefix + key)


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
