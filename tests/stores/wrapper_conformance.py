"""The suite for a store around a store: its URL is that of the inner one."""

from __future__ import annotations

from deltastore.stores import Store, open_store
from deltastore.stores.wrapped import WrappedStore

from .conformance import StoreConformance


class WrapperConformance(StoreConformance):
    """Everything that a store promises; what the URL opens is the inner store."""

    async def test_opening_the_url_again_gives_the_same_objects(self, store: Store) -> None:
        assert isinstance(store, WrappedStore)
        await store.put("a/k", b"x")
        async with open_store(store.url) as other:
            assert type(other) is type(store.inner)
            assert await other.get("a/k", limit=1) == b"x"
            assert not await other.put_if_absent("a/k", b"y")
            await other.put("l", b"z")
        assert await store.get("l", limit=1) == b"z"
