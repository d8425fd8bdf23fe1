"""A model that several writers uploaded in parts, put together chunk by chunk to be stored whole."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Self

import numpy as np

from deltastore.anchors.ahead import ReadAhead
from deltastore.detect.nothing import NoWeights
from deltastore.errors import CorruptError
from deltastore.format.pack import PackIndex
from deltastore.format.records import PackRef
from deltastore.format.table import TensorTable
from deltastore.replay import DeltaPatches, fetch_pack_index
from deltastore.stores.base import Store

__all__ = ["AssembledWeights"]

Bits = np.ndarray[Any, Any]

_AHEAD: Final = 8
"""Indexes fetched at once; chunks in memory or on their way."""


class AssembledWeights:
    """``Weights`` that are patches on nothing: every element comes from the packs.

    Chunks are put together ahead, as they are read in table order. Memory: the packs' indexes, and a few
    chunks. ``close`` it.
    """

    def __init__(self, table: TensorTable, patches: DeltaPatches) -> None:
        self._nothing = NoWeights(table)
        self._patches = patches
        self._ahead = ReadAhead(self._assembled)

    @classmethod
    async def open(cls, store: Store, table: TensorTable, version: int, packs: Sequence[PackRef]) -> Self:
        """Fetch and check the indexes of ``packs``, which no record names yet."""
        indexes: list[PackIndex] = []
        for start in range(0, len(packs), _AHEAD):
            some = packs[start : start + _AHEAD]
            indexes += await asyncio.gather(*(fetch_pack_index(store, version, pack, table) for pack in some))
        return cls(table, DeltaPatches(store, table, indexes))

    @property
    def table(self) -> TensorTable:
        """The tensors and how they are cut."""
        return self._nothing.table

    @property
    def digest(self) -> int:
        """The digest of the weights, as the indexes say; ``read`` holds every patch to it."""
        return self._patches.difference

    async def read(self, array: int, chunk: int) -> Bits:
        """The chunk's bits; ``CorruptError("bad_digest")`` for a patch that is not what its row says."""
        end = min(chunk + _AHEAD, len(self.table.arrays[array].grid))
        return await self._ahead.get([(array, number) for number in range(chunk, end)])

    async def _assembled(self, array: int, chunk: int) -> Bits:
        bits = await self._nothing.read(array, chunk)
        for stored in self._patches.of(array, chunk):
            made = await self._patches.apply(stored, bits)
            if made != int(stored.index.rows["difference"][stored.row]):
                raise CorruptError(
                    "bad_digest",
                    f"a patch of {stored.index.where} is not what its row says",
                    where=stored.index.where,
                    rule="DS046",
                    offset=stored.start,
                    tensor=self.table.arrays[array].pattern,
                )
        return bits

    async def close(self) -> None:
        """Give up what is still on its way."""
        await self._ahead.close()
