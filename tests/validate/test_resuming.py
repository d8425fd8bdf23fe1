"""Notes of a validation: what was found sound is not read again, and nothing else is believed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from deltastore.errors import InputError
from deltastore.stores.base import Store
from deltastore.validate import Level, Report, validate
from tests.doubles.models import tiny_model
from tests.doubles.stores import WatchedStore, contents, copied, fail_once, flipped, memory_store
from tests.doubles.training import Trainer


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes"


async def trained(versions: int = 4) -> Trainer:
    trainer = await Trainer.create(memory_store(), tiny_model(), pack_bytes=1 << 20)
    await trainer.steps(versions)
    return trainer


async def read(store: Store, notes: Path, level: Level = Level.CONTENT) -> tuple[Report, set[int]]:
    """The report, and the versions whose packs or shards were read."""
    spy = WatchedStore(store)
    report = await validate(spy, level=level, resume=notes)
    bodies = [key for key in spy.keys("get", "get_range") if key.startswith("packs/") or "/c/" in key]
    return report, {int(key.split("/")[1]) for key in bodies}


async def test_a_second_run_reads_what_is_new(notes: Path) -> None:
    trainer = await trained()
    report, versions = await read(trainer.store, notes)
    assert (report.ok, report.resumed, versions) == (True, 0, {0, 1, 2, 3, 4})
    report, versions = await read(trainer.store, notes)
    assert (report.ok, report.resumed, versions) == (True, 5, set())
    await trainer.steps(2)
    report, versions = await read(trainer.store, notes)
    assert (report.ok, report.resumed, report.versions, versions) == (True, 5, 7, {5, 6})
    assert report.sound == 6


async def test_structure_is_always_checked(notes: Path) -> None:
    trainer = await trained()
    await read(trainer.store, notes)
    objects = await contents(trainer.store)
    lost = next(key for key in objects if key.startswith("packs/00000000000000000002"))
    del objects[lost]
    report, _ = await read(await copied(objects), notes)
    assert [problem.where for problem in report.problems] == [lost]
    assert report.sound == 1


async def test_what_was_bad_is_read_again_and_what_rots_needs_a_run_without_notes(notes: Path) -> None:
    trainer = await trained()
    objects = await contents(trainer.store)
    pack = next(key for key in objects if key.startswith("packs/00000000000000000002"))
    broken = await copied({**objects, pack: flipped(objects[pack], 90)})
    for _ in range(2):
        report, _ = await read(broken, notes)
        assert [problem.where for problem in report.problems] == [pack]
    report, versions = await read(trainer.store, notes)
    assert (report.ok, report.resumed, versions) == (True, 4, {2})
    assert (await validate(broken, level=Level.CONTENT, resume=notes)).ok
    assert not (await validate(broken, level=Level.CONTENT)).ok


async def test_what_the_store_failed_to_give_is_read_again(notes: Path) -> None:
    trainer = await trained()
    failing = WatchedStore(trainer.store, before=fail_once("get", "packs/00000000000000000003"))
    report, _ = await read(failing, notes)
    assert (report.exit_status, report.unread, report.sound) == (1, 1, 2)
    report, versions = await read(trainer.store, notes)
    assert (report.ok, report.resumed, versions) == (True, 4, {3})


async def test_a_line_that_was_cut_short_is_dropped(notes: Path) -> None:
    trainer = await trained()
    await read(trainer.store, notes)
    whole = notes.read_bytes()
    lines = whole.splitlines(keepends=True)
    assert len(lines) == 6
    for size in range(len(lines[0]) - 1, len(whole), 23):
        notes.write_bytes(whole[:size])
        kept = max(whole[:size].count(b"\n") - 1, 0)
        report, _ = await read(trainer.store, notes)
        assert (report.ok, report.resumed) == (True, kept)
        assert sorted(notes.read_bytes().splitlines()) == sorted(whole.splitlines())
    for size in range(len(lines[0])):
        notes.write_bytes(whole[:size])
        assert (await read(trainer.store, notes))[0].resumed == 0
        assert notes.read_bytes() == whole


async def test_lines_that_say_nothing_count_for_nothing(notes: Path) -> None:
    trainer = await trained()
    await read(trainer.store, notes)
    head, first, *_ = notes.read_bytes().splitlines(keepends=True)
    said = json.loads(first)
    odd = [
        *({**said, "level": level} for level in ("wonderful", None, 2, [2])),
        *({**said, "sha256": name} for name in ("0" * 64, "x" * 64, None, 7)),
        *([], "text", 7),
        {**said, "sha256": "1" * 64, "level": "none"},
    ]
    lines = b"".join(json.dumps(one).encode() + b"\n" for one in odd)
    notes.write_bytes(head + b"\xff\n{\n" + b"z" * 10_000 + b"\n" + b"[" * 4000 + b"\n" + lines)
    assert (await read(trainer.store, notes))[0].resumed == 0


async def test_a_history_that_was_rolled_back_is_another(notes: Path) -> None:
    trainer = await trained(2)
    objects = await contents(trainer.store)
    await trainer.steps(2)
    await read(trainer.store, notes)
    other = Trainer(await copied(objects), trainer.copy(), trainer.writer, trainer.history)
    other.load(2)
    await other.reopen()
    await other.steps(2)
    report, versions = await read(other.store, notes)
    assert (report.ok, report.resumed, versions) == (True, 3, {3, 4})


class TestRefused:
    """Files that are no notes of this stream."""

    async def test_the_notes_of_another_stream(self, notes: Path) -> None:
        await read((await trained()).store, notes)
        before = notes.read_bytes()
        with pytest.raises(InputError, match="stream"):
            await read((await trained()).store, notes)
        assert notes.read_bytes() == before

    @pytest.mark.parametrize("data", [b"something\n", b"{}\n", b"[]\n", b"\x00" * 5000, b'{"kind": "x"}\n'])
    async def test_another_file(self, notes: Path, data: bytes) -> None:
        notes.write_bytes(data)
        with pytest.raises(InputError, match="no notes"):
            await read((await trained()).store, notes)
        assert notes.read_bytes() == data

    async def test_a_file_that_is_in_use(self, notes: Path) -> None:
        trainer = await trained()

        class Nested(WatchedStore):
            async def get(self, key: str, *, limit: int) -> bytes:
                if key.startswith("packs/"):
                    with pytest.raises(InputError, match="another validation"):
                        await validate(trainer.store, resume=notes)
                return await super().get(key, limit=limit)

        assert (await validate(Nested(trainer.store), level=Level.CONTENT, resume=notes)).ok

    async def test_what_is_no_file(self, tmp_path: Path) -> None:
        trainer = await trained(1)
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "file").touch()
        for path in (
            tmp_path,
            Path("/dev/null"),
            tmp_path / "pipe",
            tmp_path / "file" / "x",
            tmp_path / "no" / "x",
        ):
            with pytest.raises(InputError, match=f"^{path}: .*give a regular file"):
                await read(trainer.store, path)


class TestDeep:
    """A replay is noted version by version, and a version that was only read is not taken for replayed."""

    async def test_levels_are_kept_apart(self, notes: Path) -> None:
        trainer = await trained()
        await read(trainer.store, notes)
        report, versions = await read(trainer.store, notes, Level.DEEP)
        assert report.resumed == 0, "nothing is taken from the notes that is read again"
        assert versions == {0, 1, 2, 3, 4}, "but they are replayed"
        assert report.judged["DS093"] == 1
        report, versions = await read(trainer.store, notes, Level.DEEP)
        assert (report.ok, report.resumed, versions) == (True, 5, set())
        assert "DS093" not in report.judged
        assert (await read(trainer.store, notes))[1] == set()

    async def test_new_versions_are_replayed_from_their_anchor(self, notes: Path) -> None:
        trainer = await trained()
        await trainer.step(anchor=True)
        await trainer.steps(1)
        await read(trainer.store, notes, Level.DEEP)
        trainer.load(2)
        await trainer.reopen()
        await trainer.steps(1)
        report, versions = await read(trainer.store, notes, Level.DEEP)
        assert report.ok
        assert versions == {0, 1, 2, 7}, "neither another branch nor another anchor"
