"""The order of the system calls that make a write durable, and what is believed of their replies."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from deltastore.errors import StoreError
from deltastore.stores.local import LocalStore

from .operations import files_below, refusal


class Calls:
    """Records the system calls that make a write durable, as names with what they act on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self.seen: list[str] = []
        self.root = root
        for name in ("fsync", "link", "replace", "mkdir"):
            monkeypatch.setattr(os, name, self._recording(name, getattr(os, name)))

    def _recording(self, name: str, call: Any) -> Any:
        def recording(*args: Any, **named: Any) -> Any:
            if name == "fsync":
                shown = self._name_of(args[0])
            else:
                shown = Path(args[0] if name == "mkdir" else args[1]).name
            result = call(*args, **named)
            self.seen.append(f"{name} {shown}")
            return result

        return recording

    def _name_of(self, file: int) -> str:
        found = os.fstat(file)
        for path in (self.root.parent, self.root, *self.root.rglob("*")):
            if os.path.samestat(path.stat(), found):
                return ".tmp" if path.name.startswith(".tmp-") else os.path.relpath(path, self.root)
        raise LookupError(file)


class TestDurability:
    @pytest.fixture
    def calls(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> Calls:
        return Calls(monkeypatch, root)

    async def test_put(self, local: LocalStore, calls: Calls) -> None:
        await local.put("a/b/k", b"x")
        new = ["mkdir the root", "fsync ..", "mkdir a", "fsync .", "mkdir b", "fsync a"]
        write = ["fsync .tmp", "replace k", "fsync a/b"]
        assert calls.seen == new + write
        calls.seen.clear()
        await local.put("a/b/k", b"y")
        assert calls.seen == write

    async def test_create(self, local: LocalStore, calls: Calls) -> None:
        await local.put("a/other", b"x")
        calls.seen.clear()
        assert await local.put_if_absent("a/k", b"x")
        assert calls.seen == ["fsync .tmp", "link k", "fsync a"]

    async def test_the_loser_makes_the_winners_object_durable(self, local: LocalStore, calls: Calls) -> None:
        await local.put("a/k", b"x")
        calls.seen.clear()
        assert not await local.put_if_absent("a/k", b"y")
        assert calls.seen == ["fsync .tmp", "fsync a"]

    async def test_folders_that_another_made_are_synced_once(
        self, local: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (root / "a").mkdir(parents=True)
        calls = Calls(monkeypatch, root)
        await local.put("a/k", b"x")
        await local.put("a/l", b"x")
        assert calls.seen == [
            *("fsync .", "fsync .tmp", "replace k", "fsync a"),
            *("fsync .tmp", "replace l", "fsync a"),
        ]

    async def test_delete(self, local: LocalStore, calls: Calls) -> None:
        await local.put("a/k", b"x")
        calls.seen.clear()
        await local.delete("a/k")
        await local.delete("a/k")
        assert calls.seen == ["fsync a", "fsync a"]


class TestLostReplies:
    """NFS may make a link and answer with an error, since a request is repeated when its reply is lost."""

    @pytest.mark.parametrize("error", [refusal(errno.EEXIST), refusal(errno.EIO)])
    async def test_made_and_then_an_error(
        self, local: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
    ) -> None:
        real = os.link

        def link(*args: Any, **named: Any) -> None:
            real(*args, **named)
            raise error

        monkeypatch.setattr(os, "link", link)
        assert await local.put_if_absent("a/k", b"x") is True
        assert files_below(root) == ["a/k"]
        assert (root / "a/k").stat().st_nlink == 1

    async def test_an_error_and_nothing_made(
        self, local: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def link(*_args: Any, **_named: Any) -> None:
            raise refusal(errno.EIO)

        monkeypatch.setattr(os, "link", link)
        with pytest.raises(StoreError) as caught:
            await local.put_if_absent("a/k", b"x")
        assert (caught.value.code, caught.value.where) == ("store_failed", "a/k")
        assert files_below(root) == []

    @pytest.mark.parametrize("made", [True, False])
    async def test_an_error_that_cannot_be_looked_into(
        self, local: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch, made: bool
    ) -> None:
        await local.put("a/k" if not made else "a/other", b"theirs")
        real = os.link

        def link(*args: Any, **named: Any) -> None:
            if made:
                real(*args, **named)
            monkeypatch.setattr(os, "stat", stat)
            raise refusal(errno.EEXIST)

        def stat(*_args: Any, **_named: Any) -> None:
            raise refusal(errno.EIO)

        monkeypatch.setattr(os, "link", link)
        with pytest.raises(StoreError) as caught:
            await local.put_if_absent("a/k", b"ours")
        monkeypatch.undo()
        assert (caught.value.code, caught.value.where) == ("store_failed", "a/k")
        assert await local.get("a/k", limit=9) == (b"ours" if made else b"theirs")

    async def test_a_backup_by_hard_links_is_no_proof(
        self, local: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = os.link
        await local.put("a/k", b"theirs")

        def link(source: str, target: str, **named: Any) -> None:
            real(source, "backup", **named)
            real(source, target, **named)

        monkeypatch.setattr(os, "link", link)
        assert await local.put_if_absent("a/k", b"ours") is False
        assert (root / "a/backup").read_bytes() == b"ours"
        assert await local.get("a/k", limit=9) == b"theirs"

    @pytest.mark.parametrize("number", [errno.EPERM, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP])
    async def test_a_file_system_without_links_is_unfit(
        self, local: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        def link(*_args: Any, **_named: Any) -> None:
            raise refusal(number)

        monkeypatch.setattr(os, "link", link)
        with pytest.raises(StoreError, match="hard links") as caught:
            await local.put_if_absent("k", b"x")
        assert caught.value.code == "store_unfit"
        assert files_below(root) == []
