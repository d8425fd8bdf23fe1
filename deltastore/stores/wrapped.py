"""A store around a store: every operation goes to the inner one until a subclass says otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator

from deltastore.stores.base import Data, ObjectInfo, Store, Tagged

__all__ = ["WrappedStore"]


class WrappedStore(Store):
    """Passes every call on to ``inner``, and promises what that promises. Closing it closes ``inner``."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def probed_at_start(self) -> bool:
        """What the inner store says."""
        return self.inner.probed_at_start

    async def get(self, key: str, *, limit: int) -> bytes:
        return await self.inner.get(key, limit=limit)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return await self.inner.get_range(key, start, length)

    async def put(self, key: str, data: Data) -> None:
        await self.inner.put(key, data)

    async def put_if_absent(self, key: str, data: Data) -> bool:
        return await self.inner.put_if_absent(key, data)

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        async for info in self.inner.list(prefix, after=after):
            yield info

    async def delete(self, key: str) -> None:
        await self.inner.delete(key)

    async def stat(self, key: str) -> ObjectInfo | None:
        return await self.inner.stat(key)

    async def get_changed(self, key: str, *, tag: str | None, limit: int) -> Tagged | None:
        return await self.inner.get_changed(key, tag=tag, limit=limit)

    async def close(self) -> None:
        await self.inner.close()
