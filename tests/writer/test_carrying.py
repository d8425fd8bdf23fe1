"""Configuration and tokenizer files on their way into a store."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from deltastore.checkpoints import CarriedFile, carried_files
from deltastore.errors import InputError
from deltastore.format.records import FileRef, file_key
from deltastore.stores.local import LocalStore
from deltastore.writer.carrying import put_files

FILES = {"config.json": b"{}", "tokenizer.json": b'{"a": 1}', "merges.txt": b"", "same.json": b"{}"}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "model.safetensors.index.json").write_bytes(b"{}")
    return folder


def ref(name: str) -> FileRef:
    content = FILES[name]
    return FileRef(name=name, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


async def test_every_file_stands_under_the_key_of_its_content(checkpoint: Path, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    refs = await put_files(store, carried_files(checkpoint).files)
    assert refs == tuple(ref(name) for name in sorted(FILES))
    for carried in refs:
        assert await store.get(file_key(carried.sha256), limit=carried.bytes) == FILES[carried.name]
    assert len([info async for info in store.list("files/")]) == len(set(FILES.values()))


async def test_a_checkpoint_that_is_one_file_carries_nothing(checkpoint: Path, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    assert await put_files(store, carried_files(checkpoint / "model.safetensors").files) == ()
    assert [info async for info in store.list("")] == []


async def test_a_file_that_changes_meanwhile_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    changing = CarriedFile("config.json", checkpoint / "config.json", 2)
    (checkpoint / "config.json").write_bytes(b"{ }")
    with pytest.raises(InputError) as refused:
        await put_files(store, [changing])
    assert refused.value.code == "bad_checkpoint"
    assert [info async for info in store.list("")] == []
