"""Damaged streams: status 12, the first bad object by name, and nothing that looks whole left behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.running import objects
from tests.cli.tampering import fields_of, flip, largest, only, record_path, rewrite, truncate

Find = Callable[[Path], Path]
Damage = Callable[[Path], None]

BIRTH, ANCHOR, TIP = 0, 2, 4
"""Slots of the stream in conftest.py."""


def the_birth(stream: Path) -> Path:
    return record_path(stream, BIRTH)


def the_anchor_record(stream: Path) -> Path:
    return record_path(stream, ANCHOR)


def the_tip(stream: Path) -> Path:
    return record_path(stream, TIP)


def the_table(stream: Path) -> Path:
    return only(stream, "tables/*")


def the_pack(stream: Path) -> Path:
    return only(stream, "packs/*/*")


def the_inventory(stream: Path) -> Path:
    return only(stream, "anchors/*/*/inventory.json")


def a_shard(stream: Path) -> Path:
    return largest(stream, "anchors/**/*")


def a_carried_file(stream: Path) -> Path:
    return largest(stream, "files/*")


def cut_short(path: Path) -> None:
    truncate(path, 1)


def flipped(path: Path) -> None:
    flip(path, path.stat().st_size // 2)


def lost(path: Path) -> None:
    path.unlink()


OBJECTS = [the_anchor_record, the_table, the_pack, the_inventory, a_shard, a_carried_file]


@pytest.mark.parametrize("damage", [cut_short, flipped, lost])
@pytest.mark.parametrize("find", OBJECTS)
def test_validate_names_the_object(deltastore: Run, stream: Path, find: Find, damage: Damage) -> None:
    path = find(stream)
    key = str(path.relative_to(stream))
    damage(path)
    deltastore("validate", stream).fails_with(12, key)
    facts = deltastore("validate", stream, "--json").json
    assert facts["ok"] is False
    assert facts["error"]["where"] == key
    first = facts["problems"][0]
    assert facts["error"] == {"code": first["code"], "message": first["message"], "where": first["where"]}


@pytest.mark.parametrize("damage", [cut_short, flipped, lost])
@pytest.mark.parametrize("find", [the_table, the_pack, the_inventory, a_shard, a_carried_file])
def test_export_names_the_object_and_writes_nothing(
    deltastore: Run, stream: Path, tmp_path: Path, find: Find, damage: Damage
) -> None:
    path = find(stream)
    key = str(path.relative_to(stream))
    damage(path)
    out = tmp_path / "out"
    ran = deltastore("export", stream, "--out", out, "--json")
    ran.fails_with(12, key)
    assert ran.json["error"]["where"] == key
    assert not out.exists()


@pytest.mark.parametrize("damage", [cut_short, flipped])
@pytest.mark.parametrize("find", [the_birth, the_tip])
def test_no_command_gets_past_a_bad_record(
    deltastore: Run, stream: Path, third: Path, tmp_path: Path, find: Find, damage: Damage
) -> None:
    path = find(stream)
    key = str(path.relative_to(stream))
    damage(path)
    before = objects(stream)
    for command in (
        "log",
        "validate",
        "follow",
        "show latest",
        f"publish {third}",
        f"export --out {tmp_path / 'out'}",
    ):
        verb, *rest = command.split()
        deltastore(verb, stream, *rest).fails_with(12, key)
    assert objects(stream) == before
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("damage", [cut_short, flipped, lost])
@pytest.mark.parametrize("find", [the_table, the_inventory, a_shard, the_pack])
def test_publish_on_a_damaged_version_commits_nothing(
    deltastore: Run, stream: Path, third: Path, find: Find, damage: Damage
) -> None:
    path = find(stream)
    damage(path)
    before = objects(stream)
    deltastore("publish", stream, third).fails_with(12, str(path.relative_to(stream)))
    assert objects(stream).items() >= before.items()
    assert deltastore("show", stream, "latest", "--json").json["version"] == 1


def test_log_shows_what_stands_before_a_bad_record(deltastore: Run, stream: Path) -> None:
    rewrite(record_path(stream, 3), parent="0" * 64)
    ran = deltastore("log", stream)
    ran.fails_with(12, "log/00000000000000000003.json")
    assert [line.split()[1] for line in ran.out.splitlines()] == ["kind", "birth", "epoch", "anchor"]
    said = deltastore("log", stream, "--json")
    assert [facts.get("kind", "error") for facts in said.lines] == ["birth", "epoch", "anchor", "error"]
    assert said.lines[-1]["error"]["code"] == "bad_chain"


def test_a_digest_that_the_version_does_not_replay_to(
    deltastore: Run, stream: Path, third: Path, tmp_path: Path
) -> None:
    digest = fields_of(the_tip(stream))["digest"]
    rewrite(the_tip(stream), digest=f"{int(digest, 16) ^ 1:016x}")
    out = tmp_path / "out"
    ran = deltastore("export", stream, "--out", out, "--json")
    ran.fails_with(12, digest, "nothing was exported")
    assert ran.json["error"]["code"] == "bad_digest"
    assert not out.exists()
    assert deltastore("export", stream, "--out", out, "--version", "0").status == 0
    deltastore("validate", stream).fails_with(12, "log/00000000000000000004.json")
    deltastore("publish", stream, third).fails_with(12, "deltastore validate")


def test_export_keeps_an_older_checkpoint_when_it_fails(
    deltastore: Run, stream: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert deltastore("export", stream, "--out", out, "--version", "0").status == 0
    before = objects(out)
    flipped(the_pack(stream))
    deltastore("export", stream, "--out", out, "--force").fails_with(12)
    assert objects(out) == before


@pytest.mark.parametrize("slot", [BIRTH, ANCHOR, TIP])
def test_a_newer_format_is_no_damage(deltastore: Run, stream: Path, tmp_path: Path, slot: int) -> None:
    rewrite(record_path(stream, slot), format=2)
    before = objects(stream)
    for command in ("log", "validate", f"export --out {tmp_path / 'out'}"):
        verb, *rest = command.split()
        ran = deltastore(verb, stream, *rest, "--json")
        ran.fails_with(13, "format version 2", "upgrade deltastore")
        assert ran.lines[-1]["error"]["code"] == "newer_format"
    assert objects(stream) == before


def test_a_kind_of_record_that_may_not_be_skipped(deltastore: Run, stream: Path) -> None:
    rewrite(the_tip(stream), kind="merge")
    deltastore("validate", stream).fails_with(13, "merge", "upgrade deltastore")


def test_a_carried_file_cannot_pass_for_weights(deltastore: Run, stream: Path, tmp_path: Path) -> None:
    record = the_anchor_record(stream)
    files = fields_of(record)["files"]
    files[0]["name"] = "model-00001-of-00002.safetensors"
    rewrite(record, files=files)
    for slot in (TIP, TIP - 1):
        record_path(stream, slot).unlink()
    out = tmp_path / "out"
    deltastore("export", stream, "--out", out).fails_with(12, "model-00001-of-00002.safetensors")
    assert not out.exists()
