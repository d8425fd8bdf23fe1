"""What exists, for whom, and since when: a part of the suite."""

from __future__ import annotations

import asyncio

import pytest

from deltastore.errors import NotFoundError
from deltastore.stores import ObjectInfo, Store, open_store

from .operations import keys_of


class PresenceConformance:
    """What exists, for whom, and since when."""

    @pytest.mark.parametrize("key", ["k", "a/b/c", "a", "present/below"])
    async def test_absent(self, store: Store, key: str) -> None:
        await store.put("present", b"x")
        await store.put("a/z", b"x")
        for read in (store.get(key, limit=9), store.get_range(key, 0, 0)):
            with pytest.raises(NotFoundError) as caught:
                await read
            assert (caught.value.code, caught.value.where) == ("no_object", key)
        assert await store.stat(key) is None
        await store.delete(key)
        assert await keys_of(store) == ["a/z", "present"]

    async def test_put_replaces(self, store: Store) -> None:
        for data in (b"long one", b"short", b"", b"again"):
            await store.put("a/b", data)
            assert await store.get("a/b", limit=9) == data
            assert await store.stat("a/b") == ObjectInfo("a/b", len(data))

    async def test_create_if_absent(self, store: Store) -> None:
        assert await store.put_if_absent("a/k", b"first") is True
        assert await store.put_if_absent("a/k", b"second") is False
        assert await store.put_if_absent("a/k", b"first") is False
        assert await store.get("a/k", limit=9) == b"first"
        await store.put("a/l", b"put")
        assert await store.put_if_absent("a/l", b"created") is False
        assert await store.get("a/l", limit=9) == b"put"
        await store.delete("a/k")
        assert await store.put_if_absent("a/k", b"third") is True
        assert await store.get("a/k", limit=9) == b"third"

    async def test_an_empty_object_occupies_its_key(self, store: Store) -> None:
        assert await store.put_if_absent("k", b"") is True
        assert await store.put_if_absent("k", b"") is False
        assert await store.put_if_absent("k", b"x") is False
        assert await store.stat("k") == ObjectInfo("k", 0)

    async def test_delete_is_idempotent(self, store: Store) -> None:
        await store.put("a/k", b"x")
        await store.put("a/l", b"y")
        await store.delete("a/k")
        await store.delete("a/k")
        assert await store.stat("a/k") is None
        assert await keys_of(store) == ["a/l"]

    async def test_one_of_many_racing_creators_wins(self, store: Store) -> None:
        contents = [bytes([number]) * (20_000 + number) for number in range(32)]
        won = await asyncio.gather(*(store.put_if_absent("log/0", data) for data in contents))
        assert won.count(True) == 1
        assert await store.get("log/0", limit=30_000) == contents[won.index(True)]

    async def test_a_reader_never_sees_a_part(self, store: Store) -> None:
        contents = [bytes([number]) * (50_000 + number) for number in range(16)]
        await store.put("k", contents[0])
        writes = [store.put("k", data) for data in contents]
        found = await asyncio.gather(*writes, *(store.get("k", limit=60_000) for _ in range(48)))
        assert set(found[len(writes) :]) <= set(contents)

    async def test_opening_the_url_again_gives_the_same_objects(self, store: Store) -> None:
        await store.put("a/k", b"x")
        async with open_store(store.url) as other:
            assert type(other) is type(store)
            assert other.url == store.url
            assert await other.get("a/k", limit=1) == b"x"
            assert not await other.put_if_absent("a/k", b"y")
            await other.put("l", b"z")
        assert await store.get("l", limit=1) == b"z"

    async def test_closing(self, store: Store) -> None:
        async with store as entered:
            assert entered is store
            await store.put("k", b"x")
        await store.close()
        await store.close()
        assert await open_store(store.url).get("k", limit=1) == b"x"

    def test_the_url_is_fit_to_print(self, store: Store) -> None:
        assert "://" in store.url
        assert not set("@?#\n ") & set(store.url)
