"""Every input that cannot be used gets its own error, and the stream stays as it was, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.checkpoints import Tensor, Tensors, first_tensors, write_file, write_folder
from tests.cli.conftest import Run
from tests.cli.running import Ran, objects

NORM = "model.norm.weight"


def with_unknown_tensor(tensors: Tensors) -> Tensors:
    return {**tensors, "lm_head.weight": Tensor("BF16", (2, 2), bytes(8))}


def with_missing_tensor(tensors: Tensors) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if name != NORM}


def with_changed_shape(tensors: Tensors) -> Tensors:
    return {**tensors, NORM: Tensor("F32", (4, 8), tensors[NORM].data)}


def with_changed_dtype(tensors: Tensors) -> Tensors:
    return {**tensors, NORM: Tensor("I32", (32,), tensors[NORM].data)}


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        (with_unknown_tensor, "unknown_tensor", ("lm_head.weight",)),
        (with_missing_tensor, "missing_tensor", (NORM,)),
        (with_changed_shape, "wrong_shape", (NORM, "[4, 8]", "[32]")),
        (with_changed_dtype, "wrong_dtype", (NORM, "I32", "F32")),
    ],
)
def test_a_checkpoint_that_is_not_the_streams(
    deltastore: Run,
    stream: Path,
    tmp_path: Path,
    spoil: Callable[[Tensors], Tensors],
    code: str,
    words: tuple[str, ...],
) -> None:
    other = write_file(tmp_path / "other.safetensors", spoil(first_tensors()))
    refused(deltastore, stream, 1, code, "publish", stream, other).fails_with(1, *words)


@pytest.mark.parametrize("version", ["0", "1"])
def test_a_version_that_is_not_above_the_tip(
    deltastore: Run, stream: Path, second: Path, version: str
) -> None:
    ran = refused(deltastore, stream, 11, "version_taken", "publish", stream, second, "--version", version)
    ran.fails_with(11, f"version {version}", "take 2 or more")


def test_init_on_a_stream_that_exists(deltastore: Run, stream: Path, checkpoint: Path) -> None:
    (checkpoint / "config.json").write_text("{}")
    ran = refused(deltastore, stream, 11, "exists", "init", stream, "--from", checkpoint)
    ran.fails_with(11, "at version 1")


def test_export_into_a_folder_that_holds_files(deltastore: Run, stream: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    refused(deltastore, stream, 1, "bad_argument", "export", stream, "--out", out).fails_with(1, "--force")
    assert objects(out) == {"notes.txt": b"mine"}


@pytest.mark.parametrize(
    "command", ["log", "validate", "follow", "show latest", "export --out DIR", "publish CKPT"]
)
def test_a_url_that_is_no_stream(deltastore: Run, second: Path, tmp_path: Path, command: str) -> None:
    verb, *rest = command.replace("DIR", str(tmp_path / "out")).replace("CKPT", str(second)).split()
    empty = tmp_path / "empty"
    ran = deltastore(verb, empty, *rest, "--json")
    ran.fails_with(10, "holds no stream", "deltastore init")
    assert ran.json["error"]["code"] == "no_stream"
    assert not empty.exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "url", ["stream", "s3://bucket/stream?password=x", "file://stream", "http://host/stream", ""]
)
def test_a_url_that_names_no_store(deltastore: Run, url: str) -> None:
    ran = deltastore("log", url, "--json")
    ran.fails_with(1)
    assert ran.json["error"]["code"] == "bad_url"


@pytest.mark.parametrize("version", ["2", "1000000"])
def test_a_version_that_is_not_there(deltastore: Run, stream: Path, tmp_path: Path, version: str) -> None:
    refused(deltastore, stream, 10, "no_version", "show", stream, version).fails_with(10, "its last one is 1")
    out = tmp_path / "out"
    refused(deltastore, stream, 10, "no_version", "export", stream, "--version", version, "--out", out)
    assert not out.exists()


@pytest.mark.parametrize("missing", ["nothing", "nothing.safetensors"])
def test_a_checkpoint_that_is_not_there(deltastore: Run, stream: Path, tmp_path: Path, missing: str) -> None:
    path = tmp_path / missing
    refused(deltastore, stream, 1, "bad_checkpoint", "publish", stream, path).fails_with(1, missing)
    ran = deltastore("init", tmp_path / "new", "--from", path)
    ran.fails_with(1, missing, "No such file or directory")
    assert not (tmp_path / "new").exists()


def test_a_checkpoint_that_was_cut_short(deltastore: Run, stream: Path, second: Path) -> None:
    second.write_bytes(second.read_bytes()[:-1])
    refused(deltastore, stream, 1, "bad_checkpoint", "publish", stream, second)


def test_an_output_that_cannot_be_written(deltastore: Run, stream: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    refused(deltastore, stream, 1, "bad_argument", "export", stream, "--out", tmp_path / "file" / "out")
    refused(deltastore, stream, 1, "bad_argument", "export", stream, "--out", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--meta", "lr"), "KEY=VALUE"),
        (("--meta", "lr=1", "--meta", "lr=2"), "given twice"),
        (("--meta", "step=5"), "--step"),
        (("--step", str(2**53)), "largest"),
        (("--step", "-1"), "--step"),
        (("--step", "1.5"), "--step"),
        (("--version", "-1"), "--version"),
        (("--version", "latest"), "--version"),
        (("--label", "x" * 201), "201 characters"),
        (("--label", "\udcff"), "UTF-8"),
        (("--meta", "note=\udcff"), "UTF-8"),
    ],
)
def test_a_command_line_that_makes_no_sense(
    deltastore: Run, stream: Path, second: Path, options: tuple[str, ...], words: str
) -> None:
    refused(deltastore, stream, 2, "usage", "publish", stream, second, *options).fails_with(2, words)


@pytest.mark.parametrize("options", [("--meta", "a b=1"), ("--meta", "note=" + "x" * 1025)])
def test_metadata_that_no_record_holds(
    deltastore: Run, stream: Path, second: Path, options: tuple[str, ...]
) -> None:
    refused(deltastore, stream, 1, "bad_argument", "publish", stream, second, *options)


@pytest.mark.parametrize("version", ["newest", "-1", "01", "1.0", "\u0661", "9" * 5000, ""])
def test_what_is_neither_a_version_nor_latest(deltastore: Run, stream: Path, version: str) -> None:
    refused(deltastore, stream, 2, "usage", "export", stream, "--out", "/nowhere", f"--version={version}")


def refused(run: Run, stream: Path, status: int, code: str, *arguments: str | Path) -> Ran:
    """Run it as it is and with --json; the stream is the same afterwards, and valid."""
    before = objects(stream)
    ran = run(*arguments, "--json")
    ran.fails_with(status)
    assert ran.json["error"]["code"] == code
    assert ran.err == f"deltastore: error: {ran.json['error']['message']}\n"
    plain = run(*arguments)
    assert (plain.status, plain.out, plain.err) == (status, "", ran.err)
    assert objects(stream) == before
    assert run("validate", stream).status == 0
    return plain


def test_a_changed_tokenizer_is_named_and_not_published(
    deltastore: Run, stream: Path, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "next", first_tensors())
    (folder / "tokenizer.json").write_text('{"other": true}')
    (folder / "added.json").write_text("{}")
    done = deltastore("publish", stream, folder)
    assert done.status == 0
    assert "tokenizer.json is not what the stream carries" in done.err
    assert "added.json is not what the stream carries" in done.err
    assert "config.json" not in done.err


def test_a_checkpoint_without_tensors_makes_no_stream(deltastore: Run, tmp_path: Path) -> None:
    write_file(tmp_path / "empty.safetensors", {})
    deltastore("init", tmp_path / "new", "--from", tmp_path / "empty.safetensors").fails_with(1, "no tensor")
    assert not (tmp_path / "new").exists()
