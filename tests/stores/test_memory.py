"""The store in memory: the suite, and names."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from deltastore.errors import InputError
from deltastore.stores.memory import MEMORY_STORES, MemoryStore

from .conformance import StoreConformance


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    yield MemoryStore("memory://under-test")
    del MEMORY_STORES["under-test"]


class TestMemoryStore(StoreConformance):
    """The suite."""


async def test_names_keep_stores_apart(store: MemoryStore) -> None:
    await store.put("k", b"x")
    other = MemoryStore("memory://under-test/below")
    try:
        assert await other.stat("k") is None
        assert store.url == "memory://under-test"
        assert other.url == "memory://under-test/below"
    finally:
        del MEMORY_STORES["under-test/below"]


async def test_the_objects_are_in_plain_sight(store: MemoryStore) -> None:
    await store.put("k", b"x")
    assert MEMORY_STORES["under-test"].objects == {"k": b"x"}


@pytest.mark.parametrize(
    "url", ["memory://", "memory:///", "memory://a b", "memory://../a", "under-test", "file:///a"]
)
def test_a_bad_name_is_refused(url: str) -> None:
    before = dict(MEMORY_STORES)
    with pytest.raises(InputError) as caught:
        MemoryStore(url)
    assert caught.value.code == "bad_url"
    assert before == MEMORY_STORES


async def test_creators_in_other_threads_have_one_winner(store: MemoryStore) -> None:
    def create(number: int) -> None:
        # The operations of this store never wait, so one step runs a coroutine to its end.
        try:
            store.put_if_absent("k", bytes([number])).send(None)
        except StopIteration as stop:
            won[number] = stop.value

    won = [False] * 8
    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won.count(True) == 1
    assert await store.get("k", limit=1) == bytes([won.index(True)])
