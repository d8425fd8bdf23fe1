"""Event loops: several may use one store, one after the other or at once, and none is left with open ends."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from deltastore.stores import Store, open_store
from tests.servers.server import Server


@pytest.fixture
def url(weed: Server) -> str:
    return weed.url(weed.bucket("loops"))


def sockets() -> int:
    """Connections to a server that something in this process still holds."""
    gc.collect()
    # Not isinstance: that asks every object there is for its class, and some answer with a warning.
    found = [thing for thing in gc.get_objects() if issubclass(type(thing), asyncio.Transport)]
    return sum(not thing.is_closing() and bool(thing.get_extra_info("peername")) for thing in found)


async def round_trip(store: Store, key: str) -> bytes:
    await store.put(key, key.encode())
    return await store.get(key, limit=99)


def test_one_loop_after_another(url: str) -> None:
    store = open_store(url)
    for key in ("a", "b", "c"):
        assert asyncio.run(round_trip(store, key)) == key.encode()
        assert sockets() == 0
    asyncio.run(store.close())


def test_a_store_that_nobody_closed_leaves_nothing(url: str) -> None:
    async def forget() -> None:
        await round_trip(open_store(url), "k")
        gc.collect()

    asyncio.run(forget())
    assert sockets() == 0


def test_loops_at_once(url: str) -> None:
    store = open_store(url)
    found: list[bytes] = []

    def work(key: str) -> None:
        found.append(asyncio.run(round_trip(store, key)))

    threads = [threading.Thread(target=work, args=(key,)) for key in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [b"a", b"b", b"c", b"d"]
    assert sockets() == 0


async def test_closing_ends_the_clients_of_other_threads(url: str) -> None:
    store = open_store(url)
    used, closed = threading.Event(), threading.Event()
    left: list[int] = []

    async def hold() -> None:
        await round_trip(store, "k")
        used.set()
        await asyncio.to_thread(closed.wait)
        await asyncio.sleep(0.05)  # what the other thread asked for is done in the next rounds of this loop
        left.append(sockets())

    thread = threading.Thread(target=lambda: asyncio.run(hold()))
    thread.start()
    await asyncio.to_thread(used.wait)
    await store.close()
    await store.close()
    closed.set()
    await asyncio.to_thread(thread.join)
    assert left == [0]


async def test_many_first_users_share_one_client(url: str) -> None:
    async with open_store(f"{url}&concurrency=3") as store:
        await asyncio.gather(*(round_trip(store, f"k{number}") for number in range(20)))
        assert 1 <= sockets() <= 3


async def test_a_closed_store_may_be_used_again(url: str) -> None:
    store = open_store(url)
    await round_trip(store, "k")
    await store.close()
    assert await round_trip(store, "k") == b"k"
    await store.close()


async def test_a_cancelled_first_user_spoils_nothing(url: str) -> None:
    async with open_store(url) as store:
        first = asyncio.ensure_future(round_trip(store, "k"))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await round_trip(store, "k") == b"k"
