"""Probing: a sound store is found sound, and every broken promise is found out and named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from deltastore.errors import InputError, StoreError
from deltastore.stores import Fault, Faults, FaultyStore, LocalStore, SingleWriterStore, Store, open_store
from deltastore.stores.memory import MEMORY_STORES, MemoryStore
from deltastore.stores.probing import Capability, Report, check_creates, probe
from deltastore.stores.wrapped import WrappedStore
from tests.servers.server import Server

from . import forged
from .operations import keys_of


@pytest.fixture
def sound() -> Iterator[MemoryStore]:
    yield MemoryStore("memory://probed")
    del MEMORY_STORES["probed"]


def names(report: Report, verdict: str) -> list[str]:
    return [found.name for found in report.capabilities if found.verdict == verdict]


def finding(report: Report, name: str) -> Capability:
    (found,) = (found for found in report.capabilities if found.name == name)
    return found


async def found_sound(store: Store) -> None:
    # On SeaweedFS a race takes up to a second a racer.
    report = await probe(store, racers=6, large_bytes=100_001)
    assert [found for found in report.capabilities if found.verdict != "ok"] == []
    assert len(report.capabilities) == 12
    assert report.missing == ()
    assert report.url == store.url
    assert report.poll_seconds is not None
    await check_creates(store)
    assert await keys_of(store) == []


async def test_memory_is_sound(sound: MemoryStore) -> None:
    await found_sound(sound)


async def test_a_folder_is_sound(tmp_path: Path) -> None:
    await found_sound(LocalStore(tmp_path))


@pytest.mark.parametrize("name", ["weed", "moto"])
async def test_real_servers_are_sound(name: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(name)
    async with open_store(server.url(server.bucket("probing"), "sound")) as store:
        await found_sound(store)


async def test_a_server_that_ignores_conditions_is_refused(s3rver: Server) -> None:
    async with open_store(s3rver.url(s3rver.bucket("probing"), "unfit")) as store:
        with pytest.raises(StoreError, match="second creation of one object succeed") as caught:
            await check_creates(store)
        assert caught.value.code == "store_unfit"
        report = await probe(store, patience_seconds=2)
    assert {"create if absent", "create race"} <= {found.name for found in report.missing}
    assert "create race lost: 32 of 32" in finding(report, "create race").detail


FORGERIES: dict[type[WrappedStore], tuple[tuple[str, ...], str]] = {
    forged.IgnoresConditions: (
        ("create if absent", "create race"),
        "a second creation of one object succeed",
    ),
    forged.OverwritesSilently: (("create if absent", "create race"), "and yet changed the object"),
    forged.RefusesEverything: (("create if absent", "create race"), "a key that never had one"),
    forged.LetsRacersWin: (("create race",), "create race lost: 32 of 32 racing creations succeeded"),
    forged.Forbids: (("absent key", "delete"), "s3:ListBucket"),
    forged.ListsBackwards: (("list order", "list after a key"), "out of order: b/00 b/0"),
    forged.ListsByFolder: (("list order",), "out of order: B _ a/b"),
    forged.ListsFromTheStart: (("list after a key",), "10 of 6 keys are listed after a.b"),
    forged.ListsOnePage: (("list order", "list after a key"), "4 of 10 keys are listed: a/b a/c/d"),
    forged.ShiftsRanges: (("ranged read",), "56 bytes from 100 of 256"),
    forged.CutsRanges: (("ranged read",), "16 bytes from 248 of an object of 256 are no error"),
    forged.Remembers: (("delete",), "still there"),
    forged.MissesAbsent: (("delete twice",), "it does not exist"),
    forged.SeesNoChange: (("conditional read",), "said to be the same"),
    forged.ReadsTheOld: (("overwrite", "conditional read"), "not what was written last"),
}


@pytest.mark.parametrize("kind", FORGERIES)
async def test_a_broken_promise_is_found_and_no_other(kind: type[WrappedStore], sound: MemoryStore) -> None:
    fails, words = FORGERIES[kind]
    report = await probe(kind(sound))
    assert tuple(names(report, "fails")) == fails
    assert names(report, "unknown") == []
    assert words in finding(report, fails[0]).detail


@pytest.mark.parametrize("kind", FORGERIES)
async def test_what_a_writer_needs_is_missing_exactly_where_it_would_lose_something(
    kind: type[WrappedStore], sound: MemoryStore
) -> None:
    needed = {"create if absent", "create race", "absent key", "ranged read", "overwrite"}
    report = await probe(kind(sound))
    assert {found.name for found in report.missing} == needed & set(FORGERIES[kind][0])


@pytest.mark.parametrize(
    "kind", [forged.IgnoresConditions, forged.OverwritesSilently, forged.RefusesEverything]
)
async def test_a_writer_is_told_what_happened_and_what_to_do(
    kind: type[WrappedStore], sound: MemoryStore
) -> None:
    with pytest.raises(StoreError) as caught:
        await check_creates(kind(sound))
    assert caught.value.code == "store_unfit"
    for words in ("memory://probed", FORGERIES[kind][1], "use another store", "--single-writer"):
        assert words in str(caught.value)
    assert await keys_of(sound) == []


async def test_one_writer_may_use_a_store_that_ignores_conditions(sound: MemoryStore) -> None:
    store = SingleWriterStore(forged.IgnoresConditions(sound))
    assert store.probed_at_start is False
    await check_creates(store)


async def test_a_quick_probe_asks_only_what_every_writer_needs(sound: MemoryStore) -> None:
    report = await probe(sound, thorough=False)
    assert names(report, "ok") == ["write and read", "create if absent", "absent key", "ranged read"]


async def test_nothing_more_is_asked_of_a_store_that_takes_no_write(sound: MemoryStore) -> None:
    report = await probe(forged.Readonly(sound))
    assert names(report, "fails") == ["write and read"]
    assert len(report.capabilities) == 1
    assert "403" in report.capabilities[0].detail
    assert report.poll_seconds is None


async def test_what_has_no_answer_is_unknown_and_so_not_there(sound: MemoryStore) -> None:
    report = await probe(forged.Hangs(sound), patience_seconds=0.05)
    assert names(report, "unknown") == ["ranged read"]
    assert [found.name for found in report.missing] == ["ranged read"]
    assert "no answer within 0.05 seconds" in finding(report, "ranged read").detail


async def test_racing_creations_without_an_answer_are_no_proof(sound: MemoryStore) -> None:
    report = await probe(forged.NoAnswers(sound))
    race = finding(report, "create race")
    assert (race.verdict, race.detail) == ("ok", "1 of 32 racing creations won, 1 had no answer")
    assert finding(report, "create if absent").verdict == "fails"


@pytest.mark.parametrize("kind", ["lost", "refused"])
async def test_a_lost_reply_is_no_verdict_on_the_store(
    kind: Literal["lost", "refused"], sound: MemoryStore
) -> None:
    store = FaultyStore(sound, Faults((Fault(kind, operations=("put_if_absent",), at=(1, 3)),)), seed=0)
    await check_creates(store)
    assert await keys_of(sound) == []


async def test_a_store_that_fails_each_time_is_given_up(sound: MemoryStore) -> None:
    store = FaultyStore(sound, Faults((Fault("refused", operations=("put_if_absent",)),)), seed=0)
    with pytest.raises(StoreError) as caught:
        await check_creates(store)
    assert caught.value.code == "store_failed"
    assert len(store.journal) == 3


async def test_a_store_that_takes_no_write_is_not_waited_for_at_the_end(sound: MemoryStore) -> None:
    report = await probe(forged.Down(sound), patience_seconds=0.1)
    assert [found.detail for found in report.missing] == ["it is down"]


async def test_the_advice_to_list_is_given_once(sound: MemoryStore) -> None:
    report = await probe(forged.ForbidsAndSaysWhy(sound), thorough=False)
    assert finding(report, "absent key").detail.count("s3:ListBucket") == 1


async def test_what_cannot_be_deleted_stays_and_is_no_reason_to_refuse(sound: MemoryStore) -> None:
    store = FaultyStore(sound, Faults((Fault("refused", operations=("delete",)),)), seed=0)
    await check_creates(store, "probes/")
    assert [key.rpartition("/")[2] for key in await keys_of(sound, "probes/")] == ["created"]


async def test_a_stream_beside_the_probes_is_untouched(sound: MemoryStore) -> None:
    await sound.put("log/0", b"record")
    await sound.put("probes/of-another", b"x")
    await probe(sound)
    assert await keys_of(sound) == ["log/0", "probes/of-another"]


async def test_a_prefix_that_no_key_has_is_refused(sound: MemoryStore) -> None:
    with pytest.raises(InputError) as caught:
        await probe(sound, "../")
    assert caught.value.code == "bad_key"
