"""A store that keeps in memory what is not measured, so that nobody waits for it."""

from __future__ import annotations

from typing import Final, Self

from deltastore.stores.base import Data, Store
from deltastore.stores.wrapped import WrappedStore

__all__ = ["KeptStore"]

_ANCHORS: Final = "anchors/"
_PACKS: Final = "packs/"


class KeptStore(WrappedStore):
    """Anchors are in memory and never in ``inner``; packs are in both, and come from memory.

    Equal objects are kept once: all shards of an anchor of zeros take little more than one of them.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._objects: dict[str, bytes] = {}
        self._contents: dict[bytes, bytes] = {}
        self._served: tuple[str, ...] = (_ANCHORS, _PACKS)

    def measured(self) -> Self:
        """The same objects, for a reader that is measured: packs come from ``inner``."""
        store = type(self)(self.inner)
        store._objects, store._contents, store._served = self._objects, self._contents, (_ANCHORS,)
        return store

    async def get(self, key: str, *, limit: int) -> bytes:
        return self._objects[key] if key.startswith(self._served) else await self.inner.get(key, limit=limit)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        if key.startswith(self._served):
            return self._objects[key][start : start + length]
        return await self.inner.get_range(key, start, length)

    async def put(self, key: str, data: Data) -> None:
        if key.startswith((_ANCHORS, _PACKS)):
            content = bytes(data)
            self._objects[key] = self._contents.setdefault(content, content)
        if not key.startswith(_ANCHORS):
            await self.inner.put(key, data)
