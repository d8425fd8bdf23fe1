"""From a checkpoint to a stream and back: every bit of every version, and the files beside the weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.checkpoints import (
    CONFIG,
    TOKENIZER,
    Tensors,
    first_tensors,
    read_file,
    second_tensors,
    third_tensors,
)
from tests.cli.conftest import Run
from tests.cli.running import objects


def exported(run: Run, stream: Path, out: Path, *options: str) -> Tensors:
    done = run("export", stream, "--out", out, *options)
    assert done.status == 0, done.err
    assert {path.name for path in out.iterdir()} == {"model.safetensors", "config.json", "tokenizer.json"}
    assert (out / "config.json").read_bytes() == CONFIG
    assert (out / "tokenizer.json").read_bytes() == TOKENIZER
    return read_file(out / "model.safetensors")


def test_every_version_comes_back_byte_for_byte(
    deltastore: Run, stream: Path, third: Path, tmp_path: Path
) -> None:
    assert deltastore("publish", stream, third).status == 0
    wanted = [first_tensors(), second_tensors(), third_tensors()]
    for version, tensors in enumerate(wanted):
        found = exported(deltastore, stream, tmp_path / f"out-{version}", "--version", str(version))
        assert found == tensors
    assert exported(deltastore, stream, tmp_path / "newest") == wanted[-1]
    assert exported(deltastore, stream, tmp_path / "latest", "--version", "latest") == wanted[-1]


def test_what_was_exported_can_be_published_and_changes_nothing(
    deltastore: Run, stream: Path, tmp_path: Path
) -> None:
    assert deltastore("export", stream, "--out", tmp_path / "out").status == 0
    done = deltastore("publish", stream, tmp_path / "out", "--json").json
    assert (done["version"], done["changed"], done["bytes"]) == (2, 0, 0)
    assert done["bytes_per_changed"] is None


def test_publish_says_what_changed_and_what_it_cost(
    deltastore: Run, stream: Path, third: Path, second: Path
) -> None:
    done = deltastore("publish", stream, third, "--json", "--version", "10").json
    assert done["version"] == 10
    assert done["kind"] == "delta"
    before, after = (
        second_tensors()["model.layers.1.mlp.weight"],
        third_tensors()["model.layers.1.mlp.weight"],
    )
    moved = sum(before.data[at : at + 2] != after.data[at : at + 2] for at in range(0, len(before.data), 2))
    assert done["changed"] == moved + 2
    assert done["elements"] == 300 * 32 + 2 * 64 * 48 + 32 + 15 + 1
    assert done["bytes"] > 0
    assert done["bytes_per_changed"] == pytest.approx(done["bytes"] / done["changed"], abs=1e-4)
    said = deltastore("publish", stream, second).out
    assert said.startswith("version 11: ")
    assert "bytes per changed element" in said


def test_init_says_what_it_stored(deltastore: Run, checkpoint: Path, tmp_path: Path) -> None:
    done = deltastore("init", tmp_path / "new", "--from", checkpoint, "--json").json
    assert (done["version"], done["kind"], done["tensors"]) == (0, "anchor", 7)
    assert [file["name"] for file in done["files"]] == ["config.json", "tokenizer.json"]
    assert [file["bytes"] for file in done["files"]] == [len(CONFIG), len(TOKENIZER)]


def test_a_file_that_cannot_be_carried_is_named_and_stops_nothing(
    deltastore: Run, checkpoint: Path, tmp_path: Path
) -> None:
    (checkpoint / "chat template.jinja").write_text("{{ messages }}")
    done = deltastore("init", tmp_path / "new", "--from", checkpoint, "--json")
    assert done.status == 0
    assert done.err.startswith("deltastore: warning: 'chat template.jinja' is not carried")
    assert len(done.json["files"]) == 2


def test_a_stream_in_memory_works_within_one_process(
    deltastore: Run, memory_url: str, checkpoint: Path, second: Path, tmp_path: Path
) -> None:
    url = memory_url
    assert deltastore("init", url, "--from", checkpoint).status == 0
    assert deltastore("publish", url, second).status == 0
    assert deltastore("validate", url).status == 0
    assert deltastore("export", url, "--out", tmp_path / "out").status == 0
    assert read_file(tmp_path / "out" / "model.safetensors") == second_tensors()


def test_a_file_url_is_the_same_stream_as_its_path(deltastore: Run, stream: Path) -> None:
    assert deltastore("log", stream.as_uri()).out == deltastore("log", stream).out


def test_reading_leaves_the_store_as_it_is(deltastore: Run, stream: Path, tmp_path: Path) -> None:
    before = objects(stream)
    for command in ("log", "validate"):
        assert deltastore(command, stream).status == 0
    assert deltastore("show", stream, "latest").status == 0
    assert deltastore("export", stream, "--out", tmp_path / "out").status == 0
    assert deltastore("follow", stream, "--timeout", "0").status == 0
    assert objects(stream) == before
