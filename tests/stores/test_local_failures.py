"""What a refusal by the operating system, or a cancelled caller, leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from deltastore.errors import DeltastoreError, StoreError
from deltastore.stores import ObjectInfo
from deltastore.stores.local import LocalStore

from .operations import OPERATIONS, files_below, keys_of, refusal


class TestFailures:
    @pytest.mark.parametrize("operation", ["put", "put_if_absent"])
    @pytest.mark.parametrize("old", [b"old", None])
    @pytest.mark.parametrize(
        ("call", "number", "advice"),
        [
            ("write", errno.ENOSPC, "free space under"),
            ("fsync", errno.ENOSPC, "free space under"),
            ("write", errno.EDQUOT, "quota"),
            ("fsync", errno.EIO, "check the disk"),
            ("open", errno.EACCES, "permission"),
            ("open", errno.EROFS, "writable"),
            ("open", errno.EMFILE, "ulimit -n"),
            ("write", errno.ESTALE, "check the mount"),
            ("write", errno.EOVERFLOW, "check the file system"),
        ],
    )
    async def test_a_write_that_fails_changes_nothing_and_says_what_to_do(
        self,
        local: LocalStore,
        root: Path,
        monkeypatch: pytest.MonkeyPatch,
        operation: str,
        old: bytes | None,
        call: str,
        number: int,
        advice: str,
    ) -> None:
        key = "a/k" if old is None or operation == "put" else "a/l"
        await local.put("a/other", b"x")
        if old is not None:
            await local.put("a/k", old)
        before = files_below(root)
        self.fail_on_new_files(monkeypatch, call, number)
        with pytest.raises(StoreError, match=advice) as caught:
            await OPERATIONS[operation](local, key)
        monkeypatch.undo()
        message = str(caught.value)
        assert (caught.value.code, caught.value.where) == ("store_failed", key)
        assert f" {key}: {os.strerror(number)}; " in message
        assert message.isprintable()
        assert files_below(root) == before
        if old is not None:
            assert await local.get("a/k", limit=9) == old

    def fail_on_new_files(self, monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
        real = getattr(os, call)

        def failing(*args: Any, **named: Any) -> Any:
            if call != "open" or args[1] & os.O_CREAT:
                raise refusal(number)
            return real(*args, **named)

        monkeypatch.setattr(os, call, failing)

    @pytest.mark.parametrize("operation", ["get", "get_range", "put_if_absent", "stat", "delete"])
    async def test_a_folder_that_cannot_be_opened(
        self, local: LocalStore, monkeypatch: pytest.MonkeyPatch, operation: str
    ) -> None:
        await local.put("a/k", b"x")
        real = os.open

        def denied(path: Any, flags: int, *args: Any, **named: Any) -> int:
            if path == "a":
                raise refusal(errno.EACCES)
            return real(path, flags, *args, **named)

        monkeypatch.setattr(os, "open", denied)
        with pytest.raises(StoreError, match="permission") as caught:
            await OPERATIONS[operation](local, "a/k")
        assert (caught.value.code, caught.value.where) == ("store_failed", "a/k")
        with pytest.raises(StoreError, match="cannot list the store: ") as refused:
            await keys_of(local)
        assert refused.value.where is None

    async def test_a_short_write_is_continued(
        self, local: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = os.write
        monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:7]))
        data = bytes(range(100))
        await local.put("k", data)
        assert await local.get("k", limit=100) == data

    async def test_a_leftover_that_cannot_be_removed_does_not_hide_a_commit(
        self, local: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def unlink(*_args: Any, **_named: Any) -> None:
            raise refusal(errno.EIO)

        monkeypatch.setattr(os, "unlink", unlink)
        assert await local.put_if_absent("k", b"x") is True
        assert await keys_of(local) == ["k"]

    async def test_no_descriptor_is_left_open(self, local: LocalStore, root: Path) -> None:
        async def everything() -> None:
            for key in ("a/b/k", "a", "link/k", "a/b/k/x"):
                for operation in OPERATIONS.values():
                    with contextlib.suppress(DeltastoreError):
                        await operation(local, key)
            assert await keys_of(local) == []

        await local.put("z", b"x")
        await local.delete("z")
        (root / "link").symlink_to("/")
        await everything()
        before = sorted(Path("/dev/fd").iterdir())
        await everything()
        assert sorted(Path("/dev/fd").iterdir()) == before


class TestCancelling:
    @pytest.mark.parametrize("fails", [False, True])
    async def test_a_cancelled_write_ends_with_its_file_work(
        self, local: LocalStore, monkeypatch: pytest.MonkeyPatch, fails: bool
    ) -> None:
        entered, leave = threading.Event(), threading.Event()
        real = os.fsync

        def fsync(file: int) -> None:
            entered.set()
            leave.wait()
            if fails:
                raise refusal(errno.EIO)
            real(file)

        await local.put("first", b"x")
        monkeypatch.setattr(os, "fsync", fsync)
        data = bytearray(b"before")
        writing = asyncio.ensure_future(local.put_if_absent("k", data))
        await asyncio.to_thread(entered.wait)
        for _ in range(3):
            writing.cancel()
            await asyncio.sleep(0.001)
            assert not writing.done()
        leave.set()
        with pytest.raises(asyncio.CancelledError):
            await writing
        data[:] = b"after!"
        expected = None if fails else ObjectInfo("k", 6)
        assert await local.stat("k") == expected
        if not fails:
            assert await local.get("k", limit=6) == b"before"
