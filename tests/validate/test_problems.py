"""Several problems at once: none hides another, and what is not damage is told from damage."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from deltastore.errors import CorruptError, StoreError
from deltastore.format.pack import HEADER_BYTES, pack_key
from deltastore.format.records import file_key, record_key
from deltastore.kernels.rows import ROW
from deltastore.stores.local import LocalStore
from deltastore.validate import Level, Report, report, validate
from tests.doubles.forging import fields_of, forge
from tests.doubles.models import tiny_model
from tests.doubles.stores import WatchedStore, contents, copied, fail_always, flipped, memory_store
from tests.doubles.training import Trainer

from .asking import delta

ANCHOR, TIP = 2, 7
"""Slots of versions 0 and 4."""


@pytest.fixture
async def trainer() -> Trainer:
    """Versions 0 to 4 in slots 2 and 4 to 7, of one pack each."""
    trainer = await Trainer.create(memory_store(), tiny_model(), pack_bytes=1 << 20)
    await trainer.steps(4)
    return trainer


def seen(found: Report) -> list[tuple[str | None, str, int | None]]:
    return [(one.check, one.code, one.version) for one in found.problems]


async def test_a_lie_of_one_version_hides_no_damage_in_another(trainer: Trainer, tmp_path: Path) -> None:
    await trainer.step(anchor=True)
    data = b"{}"
    sha256 = hashlib.sha256(data).hexdigest()
    file = {"name": "config.json", "bytes": len(data), "sha256": sha256}
    await forge(trainer.store, TIP + 1, files=[file])
    await forge(trainer.store, ANCHOR, files=[{**file, "bytes": 5}])
    await trainer.store.put(file_key(sha256), data)
    lie = ("DS063", "bad_length", 0)
    found = await validate(trainer.store)
    assert (seen(found), found.sound) == ([lie], 5)
    await trainer.store.put(file_key(sha256), b"[]")
    for level in (Level.CONTENT, Level.DEEP):
        found = await validate(trainer.store, level=level, resume=tmp_path / level.name)
        assert (seen(found), found.sound) == ([lie, ("DS063", "bad_hash", 5)], None)
        assert '"version": 5' not in (tmp_path / level.name).read_text()


class TestNoDamage:
    """Objects of a newer release, and objects that the store does not give."""

    @pytest.mark.parametrize("version", [None, 2])
    async def test_a_record_of_a_newer_format(self, trainer: Trainer, version: int | None) -> None:
        await forge(trainer.store, TIP, format=2)
        found = await validate(trainer.store, version=version)
        assert (found.exit_status, seen(found)) == (13, [("DS012", "newer_format", None)])
        assert (found.version, found.stopped, found.sound) == (version, TIP, 3 if version is None else 2)
        assert found.judged["DS093"] == 1, "what is before it is judged at the level that was asked for"
        assert (found.unsupported, found.unread, found.corrupt) == (1, 0, 0)

    @pytest.mark.spec("DS013", "DS052")
    async def test_another_object_in_a_slot_is_damage(self, trainer: Trainer) -> None:
        objects = await contents(trainer.store)
        table = next(data for key, data in objects.items() if key.startswith("tables/"))
        await trainer.store.put(record_key(TIP), table)
        found = await validate(trainer.store)
        assert (found.exit_status, seen(found)) == (12, [("DS013", "bad_json", None)])

    async def test_an_object_that_cannot_be_read(self, trainer: Trainer) -> None:
        key = pack_key(2, (await delta(trainer, 2)).packs[0].sha256)
        store = WatchedStore(trainer.store, before=fail_always("get", "get_range", prefix=key))
        found = await validate(store, level=Level.STRUCTURE)
        assert found.ok, "its length is known"
        found = await validate(store)
        assert (found.exit_status, seen(found), found.sound) == (1, [(None, "store_failed", 2)], 1)
        assert found.problems[0].broken is None
        broken = pack_key(3, (await delta(trainer, 3)).packs[0].sha256)
        await forge(trainer.store, TIP, format=2)
        found = await validate(store)
        assert (found.exit_status, found.unsupported, found.unread) == (13, 1, 1)
        assert found.worst is not None
        assert found.worst.code == "newer_format"
        await trainer.store.put(broken, flipped((await contents(trainer.store))[broken], 90))
        found = await validate(store)
        assert (found.exit_status, found.corrupt, found.found) == (12, 1, 3)
        assert found.worst == next(one for one in found.problems if one.where == broken)

    async def test_a_table_that_cannot_be_read_is_asked_for_once(self, trainer: Trainer) -> None:
        store = WatchedStore(trainer.store, before=fail_always("get", prefix="tables/"))
        found = await validate(store)
        assert (found.exit_status, found.unread, found.sound) == (1, 5, None)
        assert len([key for key in store.keys("get") if key.startswith("tables/")]) == 1

    async def test_a_store_that_fails_too_often(
        self, trainer: Trainer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = WatchedStore(trainer.store, before=fail_always("get", "get_range", prefix="packs/"))
        assert (await validate(store)).unread == 4
        monkeypatch.setattr(report, "_FAILURES", 4)
        with pytest.raises(StoreError):
            await validate(store)

    async def test_a_store_that_gives_no_log(self, trainer: Trainer) -> None:
        with pytest.raises(StoreError):
            await validate(WatchedStore(trainer.store, before=fail_always("get")))


@pytest.mark.spec("DS062", "DS093")
async def test_a_replay_finds_what_records_alone_tell(trainer: Trainer) -> None:
    for slot in (ANCHOR, 5, TIP):
        digest = int((await fields_of(trainer.store, slot))["digest"], 16)
        await forge(trainer.store, slot, digest=f"{digest ^ 0xFF:016x}")
    wrong = "bad_digest"
    found = await validate(trainer.store, level=Level.CONTENT)
    assert seen(found) == [("DS062", wrong, version) for version in (1, 2, 4)]
    found = await validate(trainer.store)
    assert seen(found) == [("DS093", wrong, 0), ("DS062", wrong, 2), ("DS062", wrong, 4)]
    assert found.sound is None


async def test_found_damage_revokes_notes(trainer: Trainer, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    assert (await validate(trainer.store, level=Level.CONTENT, resume=notes)).ok
    key = pack_key(2, (await delta(trainer, 2)).packs[0].sha256)
    sound = (await contents(trainer.store))[key]
    await trainer.store.put(key, flipped(sound, len(sound) - 1))
    found = await validate(trainer.store, level=Level.DEEP, resume=notes)
    assert (seen(found), found.resumed) == ([("DS044", "bad_hash", 2)], 0)
    found = await validate(trainer.store, level=Level.CONTENT, resume=notes)
    assert (seen(found), found.resumed) == ([("DS061", "bad_hash", 2)], 4)
    await trainer.store.put(key, sound)
    found = await validate(trainer.store, level=Level.CONTENT, resume=notes)
    assert (found.ok, found.resumed) == (True, 4)
    assert (await validate(trainer.store, level=Level.CONTENT, resume=notes)).resumed == 5


async def test_as_many_are_listed_as_were_asked_for(trainer: Trainer) -> None:
    objects = await contents(trainer.store)
    store = await copied({key: data for key, data in objects.items() if key.startswith(("log/", "tables/"))})
    every = await validate(store, limit=0)
    assert every.found == len(every.problems) == 5
    few = await validate(store, limit=3)
    assert (few.found, few.problems) == (every.found, every.problems[:3])
    assert few.worst == every.problems[0]


async def test_the_byte_in_an_index_that_is_wrong(trainer: Trainer) -> None:
    key = pack_key(2, (await delta(trainer, 2)).packs[0].sha256)
    data = (await contents(trainer.store))[key]
    second = HEADER_BYTES + ROW.itemsize
    for at, offset in ((16, 16), (second + 3, second), (second + 30, None)):
        await trainer.store.put(key, flipped(data, at, 6))
        (problem,) = (await validate(trainer.store, level=Level.CONTENT)).problems
        assert (problem.code, problem.where, problem.offset) == ("bad_hash", key, offset)
        assert problem.message.count(key) == 1


async def test_a_link_in_place_of_a_folder(trainer: Trainer, tmp_path: Path) -> None:
    objects = await contents(trainer.store)
    store = LocalStore(tmp_path / "stream")
    for key, data in objects.items():
        await store.put(key, data)
    (tmp_path / "stream" / "packs").rename(tmp_path / "elsewhere")
    (tmp_path / "stream" / "packs").symlink_to(tmp_path / "elsewhere")
    found = await validate(store)
    assert {one.where for one in found.problems} == {key for key in objects if key.startswith("packs/")}
    assert found.exit_status == CorruptError.exit_status
    assert found.found == 4
