"""Appending: one request commits, a race has one winner, and a lost reply is settled by reading."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from deltastore.errors import ConflictError, CorruptError, NotFoundError, StoreError
from deltastore.format.records import BirthRecord, EpochRecord, Record, record_key
from deltastore.log import Log, SlotTakenError, new_nonce, next_record
from deltastore.stores.base import Store
from tests.doubles.stores import (
    WRITES,
    Call,
    RetryingStore,
    WatchedStore,
    contents,
    fail_always,
    fail_once,
    memory_store,
)

from .filling import born, filled


async def append(store: Store, parent: Record, writer: str = "w") -> EpochRecord:
    return await Log(store).append(EpochRecord, parent, epoch=parent.epoch + 1, resumes=None, writer=writer)


@pytest.mark.spec("DS050", "DS051")
async def test_records_fill_the_slots_and_name_their_parents(store: Store) -> None:
    records = await filled(store, 5)
    assert [record.slot for record in records] == [0, 1, 2, 3, 4]
    assert [record.parent for record in records] == [None, *(record.sha256 for record in records[:-1])]
    assert [record.kind for record in records] == ["birth", "epoch", "epoch", "epoch", "epoch"]
    assert len({record.nonce for record in records}) == 5
    log = Log(store)
    assert [await log.record(slot) for slot in range(6)] == [*records, None]
    assert list(await contents(store)) == [record_key(slot) for slot in range(5)]


@pytest.mark.parametrize("racers", [2, 32])
@pytest.mark.spec("DS003", "DS082")
async def test_of_racing_appenders_one_wins_and_the_others_learn_who(store: Store, racers: int) -> None:
    parent = await born(store)
    results = await asyncio.gather(
        *(append(store, parent, f"racer {number}") for number in range(racers)), return_exceptions=True
    )
    winners = [result for result in results if isinstance(result, EpochRecord)]
    losers = [result for result in results if isinstance(result, SlotTakenError)]
    assert len(winners) == 1
    assert len(losers) == racers - 1
    assert all(loser.winner == winners[0] for loser in losers)
    assert {(loser.code, loser.where) for loser in losers} == {("slot_taken", record_key(1))}
    assert winners[0].writer in str(losers[0])
    assert await Log(store).tip() == winners[0]


async def test_racers_who_retry_all_get_a_slot_of_their_own(store: Store) -> None:
    parent = await born(store)

    async def until_it_works(number: int) -> EpochRecord:
        last: Record = parent
        while True:
            try:
                return await append(store, last, f"racer {number}")
            except SlotTakenError as lost:
                last = lost.winner

    records = await asyncio.gather(*(until_it_works(number) for number in range(12)))
    assert sorted(record.slot for record in records) == list(range(1, 13))
    assert [record.slot async for record in Log(store).forwards()] == list(range(13))


async def test_two_births_race_for_one_stream(store: Store) -> None:
    births = await asyncio.gather(*(born(store) for _ in range(8)), return_exceptions=True)
    created = [birth for birth in births if isinstance(birth, BirthRecord)]
    assert len(created) == 1
    assert await Log(store).birth() == created[0]


def test_a_lost_race_survives_pickling() -> None:
    record = EpochRecord.seal_new(
        slot=3,
        parent="0" * 64,
        ignorable=False,
        time=1,
        nonce=new_nonce(),
        epoch=2,
        resumes=None,
        writer="me",
    )
    copy = pickle.loads(pickle.dumps(SlotTakenError(record)))
    assert isinstance(copy, SlotTakenError)
    assert isinstance(copy, ConflictError)
    assert (copy.winner, copy.code, copy.exit_status) == (record, "slot_taken", 11)


class TestLostReplies:
    """The request arrived, or not; the answer did not."""

    @pytest.mark.spec("DS083")
    async def test_an_error_after_the_record_was_created_is_a_success(self) -> None:
        store = WatchedStore(memory_store())
        parent = await born(store)
        store.after = fail_once("put_if_absent")
        record = await append(store, parent)
        assert await Log(store).record(1) == record
        assert await Log(store).record(2) is None

    @pytest.mark.spec("DS083")
    async def test_an_error_before_the_record_was_created_is_made_good(self) -> None:
        store = WatchedStore(memory_store())
        parent = await born(store)
        store.before = fail_once("put_if_absent")
        record = await append(store, parent)
        assert await Log(store).record(1) == record
        assert await Log(store).record(2) is None

    @pytest.mark.spec("DS083")
    async def test_a_store_that_stays_away_leaves_the_outcome_open(self) -> None:
        """Nothing else is written, and the same record may be placed again."""
        store = WatchedStore(memory_store())
        parent = await born(store)
        record = next_record(EpochRecord, parent, epoch=1, resumes=None, writer="w")
        store.forget()
        store.before = fail_always("put_if_absent")
        with pytest.raises(StoreError):
            await Log(store).place(record)
        assert set(store.keys(*WRITES)) == {record_key(1)}
        assert await Log(store.inner).record(1) is None
        store.before = None
        for _ in range(2):
            await Log(store).place(record)
        assert [one async for one in Log(store).forwards()] == [parent, record]

    @pytest.mark.spec("DS083")
    async def test_taken_by_this_very_call_is_a_success(self) -> None:
        store = RetryingStore(memory_store())
        parent = await born(store)
        record = await append(store, parent, "me")
        assert (await Log(store).tip()) == record
        with pytest.raises(SlotTakenError) as lost:
            await append(store, parent, "another")
        assert lost.value.winner == record

    @pytest.mark.spec("DS083")
    async def test_an_error_while_another_took_the_slot_is_a_lost_race(self) -> None:
        store = WatchedStore(memory_store())
        parent = await born(store)
        other = await append(store.inner, parent, "other")
        store.after = fail_once("put_if_absent")
        with pytest.raises(SlotTakenError) as lost:
            await append(store, parent, "me")
        assert lost.value.winner == other

    @pytest.mark.spec("DS083")
    async def test_nothing_is_deleted_or_replaced_while_the_outcome_is_unknown(self) -> None:
        store = WatchedStore(memory_store())
        parent = await born(store)
        store.forget()
        store.after = fail_once("put_if_absent")
        store.before = fail_always("get")
        with pytest.raises(StoreError):
            await append(store, parent)
        assert store.keys("put", "delete") == []
        assert await Log(store.inner).record(1) is not None

    @pytest.mark.spec("DS083")
    async def test_a_slot_that_is_taken_and_cannot_be_read_is_an_open_outcome(self) -> None:
        class Amnesic(WatchedStore):
            async def put_if_absent(self, key: str, data: object) -> bool:
                return False

        store = Amnesic(memory_store())
        parent = await born(store.inner)
        with pytest.raises(StoreError, match="said to exist") as caught:
            await append(store, parent)
        assert (caught.value.code, caught.value.where) == ("store_failed", record_key(1))

    @pytest.mark.parametrize("standing", [b"{}", b"", b"no record"])
    async def test_a_slot_with_something_else_in_it_is_corrupt(self, standing: bytes) -> None:
        store = memory_store()
        parent = await born(store)
        await store.put(record_key(1), standing)
        with pytest.raises(CorruptError) as caught:
            await append(store, parent)
        assert caught.value.where == record_key(1)
        assert await store.get(record_key(1), limit=100) == standing

    async def test_the_same_content_twice_are_two_records(self) -> None:
        store = memory_store()
        parent = await born(store)
        first = await append(store, parent, "same")
        with pytest.raises(SlotTakenError) as lost:
            await append(store, parent, "same")
        assert lost.value.winner == first


async def test_no_append_touches_an_existing_record(store: Store) -> None:
    parent = await born(store)
    before = await contents(store)
    await append(store, parent)
    with pytest.raises(SlotTakenError):
        await append(store, parent)
    after = await contents(store)
    assert {key: after[key] for key in before} == before


async def test_an_absent_stream_is_named(store: Store) -> None:
    for ask in (Log(store).birth(), Log(store).tip(), Log(store).newest_manifest()):
        with pytest.raises(NotFoundError) as caught:
            await ask
        assert caught.value.code == "no_stream"
        assert store.url in str(caught.value)


async def test_an_appended_record_is_put_once() -> None:
    seen: list[Call] = []
    store = WatchedStore(memory_store(), before=seen.append)
    await born(store)
    assert [(call.operation, call.key) for call in seen] == [("put_if_absent", record_key(0))]


async def test_a_clock_before_1970_stops_nobody(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltastore.log.time.time_ns", lambda: -(10**18))
    records = await filled(store, 3)
    assert [record.time for record in records] == [0, 0, 0]
