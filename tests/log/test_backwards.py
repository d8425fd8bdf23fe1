"""The log is walked backwards in few round trips, and nothing is asked of records that nobody needed."""

from __future__ import annotations

import asyncio

import pytest

from deltastore.errors import CorruptError
from deltastore.format.records import BirthRecord, EpochRecord, Record, record_key
from deltastore.log import Log, new_nonce
from tests.doubles.stores import WatchedStore, memory_store


class Rounds(WatchedStore):
    """Counts how often a call begins while none is under way."""

    rounds = 0
    running = 0

    async def get(self, key: str, *, limit: int) -> bytes:
        self.rounds += not self.running
        self.running += 1
        try:
            await asyncio.sleep(0)
            return await super().get(key, limit=limit)
        finally:
            self.running -= 1


async def long_log(length: int) -> tuple[Rounds, Record]:
    store = Rounds(memory_store())
    log = Log(store)
    last: Record = await log.append(BirthRecord, None, epoch=0, stream=new_nonce())
    for number in range(1, length):
        last = await log.append(EpochRecord, last, epoch=number, resumes=None, writer="")
    store.forget()
    store.rounds = 0
    return store, last


async def test_a_long_way_takes_few_round_trips() -> None:
    store, last = await long_log(300)
    slots = [record.slot async for record in Log(store).backwards(last)]
    assert slots == list(range(299, -1, -1))
    assert len(store.keys("get")) == len(set(store.keys("get"))) == 299
    assert store.rounds <= 15


async def test_one_step_back_is_one_request() -> None:
    store, last = await long_log(50)
    steps = Log(store).backwards(last)
    assert (await anext(steps)).slot == 49
    assert store.calls == []
    assert (await anext(steps)).slot == 48
    assert store.keys("get") == [record_key(48)]
    await steps.aclose()  # type: ignore[attr-defined]


@pytest.mark.spec("DS051")
async def test_a_bad_record_matters_when_it_is_reached() -> None:
    store, last = await long_log(30)
    await store.put(record_key(20), b"{}")
    seen = []

    async def walk() -> None:
        async for record in Log(store).backwards(last):
            seen.append(record.slot)

    with pytest.raises(CorruptError) as caught:
        await walk()
    assert seen == list(range(29, 20, -1))
    assert caught.value.where == record_key(20)
