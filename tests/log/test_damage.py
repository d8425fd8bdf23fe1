"""Logs that are not what they should be: forks, replaced records, holes, wrong slots, foreign kinds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deltastore.errors import CorruptError, DeltastoreError, NotFoundError, UnsupportedError
from deltastore.format.canonical import canonical_bytes, seal
from deltastore.format.limits import RECORD_BYTES
from deltastore.format.records import Record, SkippedRecord, record_key
from deltastore.log import Log
from deltastore.stores.memory import MemoryStore
from tests.doubles.forging import append_foreign, change_record, fields_of, put_record
from tests.doubles.stores import flipped, memory_store

from .filling import filled


async def forwards(log: Log) -> list[Record]:
    return [record async for record in log.forwards()]


async def backwards(log: Log, last: Record) -> list[Record]:
    return [record async for record in log.backwards(last)]


@pytest.fixture
def store() -> MemoryStore:
    return memory_store()


def named(error: DeltastoreError) -> tuple[str, str | None]:
    return error.code, error.where


@pytest.mark.spec("DS051")
@pytest.mark.parametrize("slot", [1, 3, 5])
async def test_a_replaced_record_breaks_the_chain_at_the_one_after_it(store: MemoryStore, slot: int) -> None:
    records = await filled(store, 7)
    await change_record(store, slot, writer="somebody else")
    log = Log(store)
    for walk in (forwards(log), backwards(log, records[-1])):
        with pytest.raises(CorruptError) as caught:
            await walk
        assert named(caught.value) == ("bad_chain", record_key(slot + 1))


@pytest.mark.spec("DS051")
async def test_a_fork_is_seen_by_who_read_the_other_branch(store: MemoryStore) -> None:
    records = await filled(store, 5)
    await change_record(store, 3, writer="fork")
    await change_record(store, 4, parent=(await fields_of(store, 3))["sha256"])
    log = Log(store)
    assert len(await forwards(log)) == 5
    with pytest.raises(CorruptError) as caught:
        await log.after(records[3])
    assert named(caught.value) == ("bad_chain", record_key(4))


@pytest.mark.spec("DS051")
async def test_a_whole_new_stream_under_the_same_keys_is_seen(store: MemoryStore) -> None:
    old = await filled(store, 4)
    for slot in range(4):
        await store.delete(record_key(slot))
    await filled(store, 6)
    with pytest.raises(CorruptError) as caught:
        await Log(store).after(old[-1])
    assert caught.value.code == "bad_chain"


@pytest.mark.spec("DS051")
async def test_a_record_in_a_slot_that_is_not_its_own(store: MemoryStore) -> None:
    records = await filled(store, 4)
    await store.put(record_key(4), await store.get(record_key(3), limit=RECORD_BYTES))
    with pytest.raises(CorruptError) as caught:
        await Log(store).after(records[3])
    assert named(caught.value) == ("bad_chain", record_key(4))


@pytest.mark.spec("DS063")
async def test_a_hole_is_named_by_a_walk_back(store: MemoryStore) -> None:
    records = await filled(store, 9)
    await store.delete(record_key(5))
    log = Log(store)
    assert await log.tip() == records[-1]  # the bisection of 9 records does not meet slot 5
    with pytest.raises(CorruptError) as caught:
        await backwards(log, records[-1])
    assert named(caught.value) == ("lost_object", record_key(5))
    assert len(await forwards(log)) == 5


@pytest.mark.spec("DS050")
async def test_slot_0_is_a_birth(store: MemoryStore) -> None:
    await filled(store, 2)
    birth = await fields_of(store, 0)
    forged = {**await fields_of(store, 1), "slot": 0, "parent": None}
    await put_record(store, 0, forged)
    for ask in (Log(store).birth(), Log(store).tip(), forwards(Log(store))):
        with pytest.raises(CorruptError) as caught:
            await ask
        assert named(caught.value) == ("bad_chain", record_key(0))
    await put_record(store, 0, birth)
    assert (await Log(store).birth()).stream == birth["stream"]


@pytest.mark.spec("DS050")
async def test_no_other_slot_is_a_birth(store: MemoryStore) -> None:
    records = await filled(store, 3)
    birth = await fields_of(store, 0)
    await put_record(store, 3, {**birth, "slot": 3, "parent": records[2].sha256, "epoch": 2})
    for ask in (Log(store).record(3), Log(store).tip(), Log(store).after(records[2])):
        with pytest.raises(CorruptError) as caught:
            await ask
        assert named(caught.value) == ("bad_chain", record_key(3))


@pytest.mark.parametrize("parent", [None, "0" * 64])
@pytest.mark.spec("DS051")
async def test_only_slot_0_has_no_parent(store: MemoryStore, parent: str | None) -> None:
    await filled(store, 3)
    await change_record(store, 2 if parent is None else 0, parent=parent)
    with pytest.raises(CorruptError) as caught:
        await forwards(Log(store))
    assert caught.value.code == "bad_json"


@pytest.mark.spec("DS010", "DS011", "DS013")
async def test_every_flipped_bit_of_a_record_is_found(store: MemoryStore) -> None:
    await filled(store, 3)
    data = await store.get(record_key(1), limit=RECORD_BYTES)
    for at in range(len(data)):
        await store.put(record_key(1), flipped(data, at, at % 8))
        with pytest.raises((CorruptError, UnsupportedError)) as caught:
            await Log(store).record(1)
        assert caught.value.where == record_key(1)
        if isinstance(caught.value, UnsupportedError):
            assert caught.value.code == "newer_format"
        else:
            assert caught.value.code in ("bad_json", "bad_hash")


@pytest.mark.spec("DS010")
async def test_truncated_extended_and_empty_records(store: MemoryStore) -> None:
    await filled(store, 2)
    data = await store.get(record_key(1), limit=RECORD_BYTES)
    for wrong in (
        b"",
        data[:-1],
        data[: len(data) // 2],
        data + b" ",
        data + data,
        b"null",
        b"[]",
        b"{}",
        b"\xff",
    ):
        await store.put(record_key(1), wrong)
        with pytest.raises(CorruptError) as caught:
            await Log(store).record(1)
        assert caught.value.code in ("bad_json", "bad_hash")
        assert caught.value.where == record_key(1)


@pytest.mark.spec("DS100", "DS004")
async def test_a_huge_record_is_refused_by_its_size(store: MemoryStore) -> None:
    await filled(store, 1)
    await store.put(record_key(1), b"[" * (RECORD_BYTES + 1))
    with pytest.raises(CorruptError) as caught:
        await Log(store).record(1)
    assert named(caught.value) == ("too_large", record_key(1))
    await store.put(record_key(1), b"[" * RECORD_BYTES)
    with pytest.raises(CorruptError) as deep:
        await Log(store).record(1)
    assert deep.value.code == "bad_json"


class TestForeignKinds:
    """Records of a later release."""

    @pytest.mark.spec("DS052")
    async def test_an_ignorable_one_is_skipped(self, store: MemoryStore) -> None:
        await filled(store, 2)
        slot = await append_foreign(store, kind="label", name="stable", deep={"a": [1, {"b": None}]})
        log = Log(store)
        last = (await forwards(log))[-1]
        assert isinstance(last, SkippedRecord)
        assert (last.kind, last.slot) == ("label", slot)
        assert await log.tip() == last

    @pytest.mark.spec("DS052")
    async def test_the_chain_goes_through_a_skipped_one(self, store: MemoryStore) -> None:
        await filled(store, 2)
        slot = await append_foreign(store)
        await append_foreign(store)
        await change_record(store, slot, name="other")
        with pytest.raises(CorruptError) as caught:
            await forwards(Log(store))
        assert named(caught.value) == ("bad_chain", record_key(slot + 1))

    @pytest.mark.spec("DS052")
    @pytest.mark.parametrize(
        "wrong", [{"nonce": "short"}, {"slot": 9}, {"time": -1}, {"epoch": "1"}, {"parent": 3}]
    )
    async def test_a_skipped_one_still_is_a_record(self, store: MemoryStore, wrong: dict[str, Any]) -> None:
        await filled(store, 2)
        slot = await append_foreign(store, **wrong)
        assert slot == 2
        with pytest.raises(CorruptError) as caught:
            await Log(store).record(slot)
        assert caught.value.code in ("bad_json", "bad_chain")
        assert caught.value.where == record_key(slot)
        assert "\n" not in str(caught.value)

    @pytest.mark.spec("DS052")
    @pytest.mark.parametrize("ignorable", [False, None, 1, "true"])
    async def test_one_that_is_not_ignorable_stops_the_reader(
        self, store: MemoryStore, ignorable: Any
    ) -> None:
        records = await filled(store, 2)
        await append_foreign(store, kind="prune", ignorable=ignorable)
        log = Log(store)
        for ask in (forwards(log), log.tip(), log.after(records[-1])):
            with pytest.raises(UnsupportedError, match="upgrade") as caught:
                await ask
            assert named(caught.value) == ("unknown_kind", record_key(2))
            assert caught.value.exit_status == 13

    @pytest.mark.spec("DS012")
    @pytest.mark.parametrize("ignorable", [True, False])
    async def test_a_newer_format_is_named_before_anything_else(
        self, store: MemoryStore, ignorable: bool
    ) -> None:
        await filled(store, 2)
        unsealed = {"format": 2, "kind": "delta", "ignorable": ignorable, "fraction": 0.5, "sha256": "no"}
        for data in (canonical_bytes(seal({"format": 2})), json.dumps(unsealed, indent=3).encode()):
            await store.put(record_key(2), data)
            with pytest.raises(UnsupportedError) as caught:
                await forwards(Log(store))
            assert named(caught.value) == ("newer_format", record_key(2))
            assert caught.value.exit_status == 13

    @pytest.mark.spec("DS013")
    @pytest.mark.parametrize("kind", ["birth", "epoch", "delta", "anchor"])
    async def test_a_known_kind_marked_ignorable_has_its_members_all_the_same(
        self, store: MemoryStore, kind: str
    ) -> None:
        await filled(store, 2)
        slot = await append_foreign(store, kind=kind, surplus=1)
        with pytest.raises(CorruptError) as caught:
            await Log(store).record(slot)
        assert named(caught.value) == ("bad_json", record_key(slot))


async def test_a_stream_without_slot_0_is_none(store: MemoryStore) -> None:
    await filled(store, 4)
    await store.delete(record_key(0))
    with pytest.raises(NotFoundError):
        await Log(store).tip()
