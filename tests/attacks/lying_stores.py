"""Stores that lie: answers that are short, long, endless, foreign, out of order, or another one each time."""

from __future__ import annotations

from collections.abc import AsyncIterator

from deltastore.stores.base import ObjectInfo, Store
from deltastore.stores.wrapped import WrappedStore


class ShortStore(WrappedStore):
    """Gives one byte less than there is, of objects under a prefix."""

    def __init__(self, inner: Store, prefix: str = "") -> None:
        super().__init__(inner)
        self._prefix = prefix

    async def get(self, key: str, *, limit: int) -> bytes:
        data = await self.inner.get(key, limit=limit)
        return data[:-1] if key.startswith(self._prefix) else data

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        data = await self.inner.get_range(key, start, length)
        return data[:-1] if key.startswith(self._prefix) else data


class LongStore(WrappedStore):
    """Gives more than there is, and more than was asked for, of objects under a prefix."""

    def __init__(self, inner: Store, prefix: str = "") -> None:
        super().__init__(inner)
        self._prefix = prefix

    async def get(self, key: str, *, limit: int) -> bytes:
        data = await self.inner.get(key, limit=limit)
        return data + bytes(1000) if key.startswith(self._prefix) else data

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        data = await self.inner.get_range(key, start, length)
        return data + bytes(1000) if key.startswith(self._prefix) else data


class ShiftedStore(WrappedStore):
    """Answers a range with the bytes beside it."""

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        whole = await self.inner.get(key, limit=1 << 30)
        shifted = (whole + whole)[start + 1 : start + 1 + length]
        return shifted if not key.startswith("log/") else whole[start : start + length]


class FickleStore(WrappedStore):
    """Answers with the sound object once, and from then on with one that has a bit flipped."""

    def __init__(self, inner: Store, prefix: str) -> None:
        super().__init__(inner)
        self._prefix = prefix
        self._asked: set[str] = set()

    def _flipped(self, key: str, data: bytes) -> bytes:
        if not key.startswith(self._prefix) or not data:
            return data
        if key not in self._asked:
            self._asked.add(key)
            return data
        middle = len(data) // 2
        return data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]

    async def get(self, key: str, *, limit: int) -> bytes:
        return self._flipped(key, await self.inner.get(key, limit=limit))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return self._flipped(key, await self.inner.get_range(key, start, length))


class EndlessLogStore(WrappedStore):
    """Says of every slot that it is taken, and has no more records than there are."""

    async def stat(self, key: str) -> ObjectInfo | None:
        if key.startswith("log/"):
            return ObjectInfo(key, 100)
        return await self.inner.stat(key)


class ForeignListingStore(WrappedStore):
    """Lists keys that were not asked for, backwards, and twice."""

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        found = [info async for info in self.inner.list(prefix, after=after)]
        for info in reversed(found):
            yield info
            yield info
        for key in ("../../etc/passwd", "/etc/passwd", "log/\x1b[2J", prefix + "\u202e", "", "log/x"):
            yield ObjectInfo(key, 7)


class LyingSizesStore(WrappedStore):
    """Says other sizes in listings than objects have."""

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        async for info in self.inner.list(prefix, after=after):
            yield ObjectInfo(info.key, info.size + 1)

    async def stat(self, key: str) -> ObjectInfo | None:
        found = await self.inner.stat(key)
        return None if found is None else ObjectInfo(key, (1 << 63) - 1)
