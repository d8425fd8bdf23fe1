"""Galloping: the tip of a log of any length, in few requests."""

from __future__ import annotations

import pytest

from deltastore.errors import CorruptError, NotFoundError
from deltastore.format.records import Record, record_key
from deltastore.log import Log
from deltastore.stores.base import ObjectInfo, Store
from tests.doubles.stores import WatchedStore, contents, copied, memory_store

from .filling import append_version, born, filled


async def prefixes(longest: int) -> list[tuple[list[Record], dict[str, bytes]]]:
    """The records and objects of a log of every length up to ``longest``."""
    store = memory_store()
    records = await filled(store, longest)
    objects = await contents(store)
    return [
        (records[:length], {record_key(slot): objects[record_key(slot)] for slot in range(length)})
        for length in range(1, longest + 1)
    ]


async def test_the_tip_is_found_at_every_length() -> None:
    for records, objects in await prefixes(70):
        store = WatchedStore(await copied(objects))
        assert await Log(store).tip() == records[-1]
        assert len(store.calls) <= 3 + 2 * len(records).bit_length(), len(records)


async def test_a_store_that_has_every_slot_has_no_log() -> None:
    class Endless(WatchedStore):
        async def stat(self, key: str) -> ObjectInfo | None:
            return ObjectInfo(key, 1)

    store = memory_store()
    await filled(store, 3)
    with pytest.raises(CorruptError) as caught:
        await Log(Endless(store)).tip()
    assert (caught.value.code, caught.value.rule) == ("bad_chain", "DS100")


async def test_every_walk_sees_every_length_whole() -> None:
    for records, objects in (await prefixes(40))[::3]:
        log = Log(await copied(objects))
        assert [record async for record in log.forwards()] == records
        assert [record async for record in log.backwards(records[-1])] == records[::-1]
        assert [record async for record in log.newest_after(records[0])] == records[1:]
        assert await log.after(records[-1]) is None


async def test_a_poll_is_one_request() -> None:
    store = WatchedStore(memory_store())
    records = await filled(store, 9)
    store.forget()
    assert await Log(store).after(records[-1]) is None
    assert [(call.operation, call.key) for call in store.calls] == [("get", record_key(9))]


async def test_reading_on_from_a_known_record_is_a_request_for_each_new_one() -> None:
    store = WatchedStore(memory_store())
    records = await filled(store, 9)
    for known in records:
        store.forget()
        assert await Log(store).latest(known) == records[-1]
        assert len(store.calls) == 9 - known.slot


async def test_the_tip_of_a_growing_log_is_never_behind_what_stood_before(store: Store) -> None:
    log = Log(store)
    last: Record = await born(store)
    for version in range(20):
        last = await append_version(store, last, version + 1, version)
        assert (await log.tip()).slot == last.slot


class TestManifests:
    """Looking up versions."""

    async def test_versions_with_gaps_are_found_by_number(self, store: Store) -> None:
        last: Record = await born(store)
        made = {}
        for version, base in ((3, 0), (4, 3), (10, 4), (11, 10)):
            last = made[version] = await append_version(store, last, version, base)
        log = Log(store)
        for version, record in made.items():
            assert await log.manifest(version) == record
        assert await log.newest_manifest() == made[11]
        assert await log.manifest_before(made[4]) == made[4]
        for version in (0, 2, 5, 9, 12):
            with pytest.raises(NotFoundError, match="its last one is 11") as caught:
                await log.manifest(version)
            assert caught.value.code == "no_version"

    async def test_a_stream_without_versions_says_so(self, store: Store) -> None:
        await filled(store, 3)
        log = Log(store)
        with pytest.raises(NotFoundError, match="no version yet") as caught:
            await log.newest_manifest()
        assert caught.value.code == "no_version"
        with pytest.raises(NotFoundError, match="it has none yet"):
            await log.manifest(0)
        assert await log.manifest_before(await log.tip()) is None
