"""Which files travel beside the weights."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deltastore.checkpoints import carried_files
from deltastore.errors import InputError
from deltastore.format.records import FileRef


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text(f"content of {name}")


def test_configuration_and_tokenizer_are_carried_and_weights_are_not(tmp_path: Path) -> None:
    carried = [
        "chat_template.jinja",
        "config.json",
        "merges.txt",
        "modeling.py",
        "qwen.tiktoken",
        "spiece.model",
    ]
    touch(tmp_path, *carried)
    touch(tmp_path, "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin.index.json")
    touch(tmp_path, "optimizer.pt", "README.md", "training_args.bin")
    found = carried_files(tmp_path)
    assert [file.name for file in found.files] == carried
    assert found.warnings == ()
    assert [file.read() for file in found.files] == [f"content of {name}".encode() for name in carried]
    assert [file.size for file in found.files] == [len(file.read()) for file in found.files]


def test_every_carried_name_is_one_that_a_record_takes(tmp_path: Path) -> None:
    touch(tmp_path, "_a.json", "a-b.c.json", "1.txt", "n" * 195 + ".json")
    for file in carried_files(str(tmp_path)).files:
        FileRef(name=file.name, bytes=file.size, sha256="0" * 64)
    assert len(carried_files(tmp_path).files) == 4


@pytest.mark.parametrize(
    "name", [".hidden.json", "-x.json", "a b.json", "é.json", "n" * 196 + ".json", "a\n.json"]
)
def test_a_name_that_no_record_takes_is_a_warning(tmp_path: Path, name: str) -> None:
    touch(tmp_path, "config.json", name)
    found = carried_files(tmp_path)
    assert [file.name for file in found.files] == ["config.json"]
    (warning,) = found.warnings
    assert "is not carried" in warning
    assert "\n" not in warning


def test_links_into_a_cache_are_followed(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    touch(tmp_path / "blobs", "0123")
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "config.json").symlink_to("../blobs/0123")
    (file,) = carried_files(tmp_path / "snapshot").files
    assert (file.name, file.read()) == ("config.json", b"content of 0123")


def test_what_is_no_file_is_a_warning_or_a_folder(tmp_path: Path) -> None:
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "dangling.json").symlink_to("gone")
    os.mkfifo(tmp_path / "pipe.json")
    found = carried_files(tmp_path)
    assert found.files == ()
    assert ["not a regular file" in warning for warning in found.warnings] == [True, True]


def test_a_large_file_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltastore.checkpoints.carried.FILE_BYTES", 30)
    touch(tmp_path, "a.json", "a_rather_long_name_of_a_file.json")
    found = carried_files(tmp_path)
    assert [file.name for file in found.files] == ["a.json"]
    assert "above 30" in found.warnings[0]


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltastore.checkpoints.carried.FILE_COUNT", 3)
    touch(tmp_path, "a.json", "b.json", "c.json")
    assert len(carried_files(tmp_path).files) == 3
    touch(tmp_path, "d.json")
    with pytest.raises(InputError, match="4 files to carry, above 3"):
        carried_files(tmp_path)


@pytest.mark.parametrize("content", ["", "shorter", "longer than it was when it was found"])
def test_a_file_that_changed_size_is_refused(tmp_path: Path, content: str) -> None:
    touch(tmp_path, "config.json")
    (file,) = carried_files(tmp_path).files
    file.path.write_text(content)
    with pytest.raises(InputError, match="its size changed"):
        file.read()


def test_a_checkpoint_that_is_one_file_carries_nothing(tmp_path: Path) -> None:
    touch(tmp_path, "model.safetensors", "config.json")
    assert carried_files(tmp_path / "model.safetensors").files == ()
