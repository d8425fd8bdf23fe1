"""An anchor as weights: the bits of any chunk, checked before they are looked at (SPEC section "Anchors")."""

from __future__ import annotations

import asyncio
from typing import Self

from deltastore.anchors.ahead import ReadAhead
from deltastore.anchors.decoding import DecodedShard
from deltastore.anchors.inventory import fetch_object
from deltastore.anchors.opening import OpenedAnchor, open_anchor
from deltastore.anchors.sharding import array_path
from deltastore.errors import InputError
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
        table: TensorTable,
        opened: OpenedAnchor,
        fetches: int,
    ) -> None:
        self._store = store
        self._prefix = opened.prefix
        self._table = table
        self._entries = opened.entries
        self._grids = opened.grids
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
        return cls(store, table, await open_anchor(store, version, ref, table), fetches)

    @property
    def table(self) -> TensorTable:
        """The tensors and how they are cut."""
        return self._table

    @property
    def objects(self) -> int:
        """Objects that reading all of the anchor fetches, its inventory included."""
        return len(self._entries) + 1

    @property
    def nbytes(self) -> int:
        """Bytes of these, without the inventory's."""
        return sum(entry.bytes for entry in self._entries.values())

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
        return DecodedShard(data, grid, shard, self._table.arrays[array], self._prefix + key)
