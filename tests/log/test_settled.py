"""Creating an object over a store whose answers are lost, late or stale: what stands there is the answer."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import Literal

import pytest

from deltastore.errors import CorruptError, InputError, NotFoundError, StoreError
from deltastore.stores.base import Data, no_object
from deltastore.stores.settled import create_settled
from tests.doubles.stores import WatchedStore, fail_always, fail_once, failure, memory_store

KEY = "log/1"
MINE = b"mine and nobody else's"
THEIRS = b"another's"
LIMIT = 100

Put = Literal["answered", "denied", "lost before", "lost after", "late"]
Get = Literal["answered", "stale", "lost"]


@dataclass
class Round:
    """What the store makes of one put and of the read that may follow."""

    put: Put
    get: Get


class Script(WatchedStore):
    """Answers round by round as it is told; ``late`` puts are executed by ``arrive``."""

    def __init__(self, rounds: list[Round]) -> None:
        super().__init__(memory_store())
        self.rounds = rounds
        self.late: list[bytes] = []
        self.puts: list[bytes] = []

    async def put_if_absent(self, key: str, data: Data) -> bool:
        self.now = self.rounds[len(self.puts)]
        self.puts.append(bytes(data))
        if self.now.put == "late":
            self.late.append(bytes(data))
        if self.now.put in ("late", "lost before"):
            raise failure(key)
        created = await self.inner.put_if_absent(key, data)
        if self.now.put == "lost after":
            raise failure(key)
        return created and self.now.put == "answered"

    async def get(self, key: str, *, limit: int) -> bytes:
        if self.now.get == "lost":
            raise failure(key)
        if self.now.get == "stale":
            raise no_object(key)
        return await self.inner.get(key, limit=limit)

    async def arrive(self) -> None:
        """Execute what is still on its way."""
        for data in self.late:
            await self.inner.put_if_absent(KEY, data)
        self.late.clear()


PUTS: tuple[Put, ...] = ("answered", "denied", "lost before", "lost after", "late")
GETS: tuple[Get, ...] = ("answered", "stale", "lost")


def scripts() -> list[list[Round]]:
    """All ways in which three rounds can go."""
    kinds = [Round(put, get) for put in PUTS for get in GETS]
    return [list(rounds) for rounds in itertools.product(kinds, repeat=3)]


@pytest.mark.parametrize("standing", [None, THEIRS])
@pytest.mark.spec("DS083")
async def test_whatever_the_store_answers_the_outcome_is_the_truth_or_open(standing: bytes | None) -> None:
    open_outcomes = 0
    for rounds in scripts():
        store = Script(rounds)
        if standing is not None:
            await store.inner.put(KEY, standing)
        try:
            found = await create_settled(store, KEY, MINE, limit=LIMIT, pauses=(0, 0))
        except StoreError:
            open_outcomes += 1
            assert len(store.puts) == 3
            await store.arrive()
            store.rounds += [Round("answered", "answered")]
            found = await create_settled(store, KEY, MINE, limit=LIMIT, pauses=())
        stands = await store.inner.get(KEY, limit=LIMIT)
        assert found == (None if standing is None else standing)
        assert stands == (MINE if standing is None else standing)
        assert set(store.puts) == {MINE}
        await store.arrive()
        assert await store.inner.get(KEY, limit=LIMIT) == stands
    assert open_outcomes > 500


async def test_a_late_request_of_an_earlier_round_is_known_again() -> None:
    """The first put is executed after the key was seen absent, and the second one is refused."""
    store = Script([Round("late", "answered"), Round("answered", "answered")])
    put = store.put_if_absent

    async def after_the_late_one(key: str, data: Data) -> bool:
        await store.arrive()
        return await put(key, data)

    store.put_if_absent = after_the_late_one  # type: ignore[method-assign]
    assert await create_settled(store, KEY, MINE, limit=LIMIT, pauses=(0,)) is None
    assert store.puts == [MINE, MINE]


async def test_where_nothing_goes_wrong_it_is_one_request() -> None:
    store = WatchedStore(memory_store())
    assert await create_settled(store, KEY, MINE, limit=LIMIT) is None
    assert [call.operation for call in store.calls] == ["put_if_absent"]
    store.forget()
    assert await create_settled(store, KEY, THEIRS, limit=LIMIT) == MINE
    assert [call.operation for call in store.calls] == ["put_if_absent", "get"]


async def test_a_key_that_is_said_to_exist_and_never_can_be_read() -> None:
    store = Script([Round("denied", "stale")] * 3)
    with pytest.raises(StoreError, match="said to exist but cannot be read") as caught:
        await create_settled(store, KEY, MINE, limit=LIMIT, pauses=(0, 0))
    assert (caught.value.code, caught.value.where) == ("store_failed", KEY)


async def test_a_server_that_is_gone_is_told_as_such() -> None:
    store = Script([Round("lost before", "answered")] * 3)
    with pytest.raises(StoreError, match="the server is gone"):
        await create_settled(store, KEY, MINE, limit=LIMIT, pauses=(0, 0))


@pytest.mark.parametrize(
    "error",
    [StoreError("store_unfit", "it cannot create"), InputError("bad_key", "no key"), KeyError("a bug")],
)
async def test_what_no_second_try_would_change_is_raised_at_once(error: Exception) -> None:
    class Unfit(WatchedStore):
        async def put_if_absent(self, key: str, data: Data) -> bool:
            self._begin("put_if_absent", key)
            raise error

    store = Unfit(memory_store())
    with pytest.raises(type(error)) as caught:
        await create_settled(store, KEY, MINE, limit=LIMIT)
    assert caught.value is error
    assert [call.operation for call in store.calls] == ["put_if_absent"]


async def test_an_object_above_the_limit_is_not_read() -> None:
    store = memory_store()
    await store.put(KEY, bytes(LIMIT + 1))
    with pytest.raises(CorruptError) as caught:
        await create_settled(store, KEY, MINE, limit=LIMIT)
    assert caught.value.code == "too_large"


async def test_bytes_that_came_back_damaged_are_another_s() -> None:
    """A read that is wrong by one bit never counts as success; who reads a record sees that it is none."""

    class Flipping(WatchedStore):
        async def get(self, key: str, *, limit: int) -> bytes:
            data = await self.inner.get(key, limit=limit)
            return bytes([data[0] ^ 1]) + data[1:]

    store = Flipping(memory_store(), after=fail_once("put_if_absent"))
    found = await create_settled(store, KEY, MINE, limit=LIMIT)
    assert found is not None
    assert found != MINE
    assert await store.inner.get(KEY, limit=LIMIT) == MINE


async def test_a_cancelled_creation_goes_no_further() -> None:
    reached = asyncio.Event()

    class Stuck(WatchedStore):
        async def get(self, key: str, *, limit: int) -> bytes:
            reached.set()
            await asyncio.Event().wait()
            raise NotFoundError("no_object", "never")

    store = Stuck(memory_store(), before=fail_always("put_if_absent"))
    task = asyncio.create_task(create_settled(store, KEY, MINE, limit=LIMIT))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.keys("put_if_absent") == [KEY]
