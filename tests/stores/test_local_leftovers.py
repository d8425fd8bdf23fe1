"""What somebody else, or a crash, left in the folder of a store."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest

from deltastore.errors import CorruptError, InputError, NotFoundError, StoreError
from deltastore.stores import ObjectInfo
from deltastore.stores.local import LocalStore

from .operations import OPERATIONS, files_below, keys_of


class TestOtherFiles:
    """What somebody else, or a crash, left below the root."""

    async def test_leftovers_of_a_crash_are_invisible(self, local: LocalStore, root: Path) -> None:
        await local.put("a/k", b"x")
        (root / "a" / ".tmp-0123456789abcdef").write_bytes(b"torn")
        (root / ".tmp-ff").write_bytes(b"torn")
        (root / "empty" / "folder").mkdir(parents=True)
        assert await keys_of(local) == ["a/k"]
        assert await keys_of(local, "a/") == ["a/k"]
        assert await local.stat("empty") is None
        assert await local.put_if_absent("a/l", b"y")
        assert await keys_of(local, after="a/k") == ["a/l"]

    async def test_names_that_are_no_keys_are_not_listed(self, local: LocalStore, root: Path) -> None:
        await local.put("a/k", b"x")
        for name in ("-x", ".hidden", "a b", "é", "x" * 201):
            (root / name).write_bytes(b"x")
        (root / os.fsdecode(b"\xff")).write_bytes(b"x")
        (root / ".git").mkdir()
        (root / ".git" / "k").write_bytes(b"x")
        deep = root.joinpath(*["d" * 200] * 5)
        deep.mkdir(parents=True)
        (deep / ("e" * 19)).write_bytes(b"x")
        (deep / ("e" * 20)).write_bytes(b"x")
        assert await keys_of(local) == ["a/k", "/".join(["d" * 200] * 5) + "/" + "e" * 19]

    async def test_a_link_under_a_key_is_refused(self, local: LocalStore, root: Path, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_bytes(b"secret")
        await local.put("a/inside", b"inside")
        for target in (secret, root / "a" / "inside", tmp_path / "nothing"):
            (root / "a" / "k").symlink_to(target)
            for operation in ("get", "get_range", "put_if_absent", "delete", "stat"):
                with pytest.raises(InputError, match="symbolic link") as caught:
                    await OPERATIONS[operation](local, "a/k")
                assert (caught.value.code, caught.value.where) == ("bad_key", "a/k")
            assert await keys_of(local) == ["a/inside"]
            await local.put("a/k", b"new")
            assert not (root / "a" / "k").is_symlink()
            await local.delete("a/k")
        assert secret.read_bytes() == b"secret"
        assert await local.get("a/inside", limit=9) == b"inside"
        assert not (tmp_path / "nothing").exists()

    @pytest.mark.parametrize("operation", OPERATIONS)
    async def test_a_linked_folder_is_refused(
        self, local: LocalStore, root: Path, tmp_path: Path, operation: str
    ) -> None:
        outside = tmp_path / "outside"
        (outside / "b").mkdir(parents=True)
        (outside / "b" / "k").write_bytes(b"secret")
        await local.put("z/k", b"x")
        (root / "a").symlink_to(outside)
        (root / "z" / "b").symlink_to(outside / "b")
        for key, link in (("a/k", "a"), ("a/b/k", "a"), ("z/b/k", "z/b")):
            with pytest.raises(InputError, match="symbolic link") as caught:
                await OPERATIONS[operation](local, key)
            assert (caught.value.code, caught.value.where) == ("bad_key", link)
        assert files_below(outside) == ["b/k"]
        assert (outside / "b" / "k").read_bytes() == b"secret"
        assert await keys_of(local) == ["z/k"]
        with pytest.raises(InputError) as caught:
            await keys_of(local, "a/b/")
        assert caught.value.code == "bad_key"

    async def test_pipes_and_sockets_are_refused_without_waiting(
        self, local: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await local.put("k", b"x")
        os.mkfifo(root / "pipe")
        monkeypatch.chdir(root)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("socket")
            for key in ("pipe", "socket"):
                for operation in ("get", "get_range", "put_if_absent", "delete", "stat"):
                    with pytest.raises(CorruptError) as caught:
                        await OPERATIONS[operation](local, key)
                    assert (caught.value.code, caught.value.where) == ("bad_length", key)
            assert await keys_of(local) == ["k"]
            assert await local.stat("pipe/below") is None
            await local.delete("pipe/below")
            with pytest.raises(NotFoundError):
                await local.get("pipe/below", limit=1)
        for key in ("pipe", "socket"):
            await local.put(key, b"y")
            assert await local.get(key, limit=1) == b"y"

    async def test_a_key_and_its_folder_cannot_both_be(self, local: LocalStore, root: Path) -> None:
        await local.put("file", b"x")
        await local.put("folder/k", b"y")
        for operation in ("put", "put_if_absent"):
            for key in ("file/k", "folder"):
                with pytest.raises(StoreError, match="another key") as caught:
                    await OPERATIONS[operation](local, key)
                assert (caught.value.code, caught.value.where) == ("store_failed", key)
        assert files_below(root) == ["file", "folder/k"]

    async def test_a_list_longer_than_a_batch(self, local: LocalStore, root: Path) -> None:
        names = [f"{number:020}.json" for number in range(2100)]
        (root / "log").mkdir(parents=True)
        for name in names:
            (root / "log" / name).write_bytes(b"")
        keys = [f"log/{name}" for name in names]
        assert await keys_of(local) == keys
        assert await keys_of(local, "log/", after=keys[999]) == keys[1000:]
        async with contextlib.aclosing(local.list("", after=keys[49])) as listing:  # type: ignore[type-var]
            assert await anext(listing) == ObjectInfo(keys[50], 0)

    async def test_a_file_that_shrinks_while_it_is_read(
        self, local: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await local.put("k", b"0123456789")
        real = os.pread
        monkeypatch.setattr(
            os, "pread", lambda file, length, start: real(file, min(length, 4), start)[: 8 - start]
        )
        assert await local.get_range("k", 1, 7) == b"1234567"
        for read in (local.get("k", limit=10), local.get_range("k", 0, 10)):
            with pytest.raises(CorruptError) as caught:
                await read
            assert caught.value.code == "bad_length"
