"""Fetching what something names: what is wrong with it, and which requirement that breaks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable
from pathlib import Path

import pytest

from deltastore.errors import CorruptError, DeltastoreError, InputError
from deltastore.stores.base import Store
from deltastore.stores.local import LocalStore
from deltastore.stores.named import fetch_named, fetch_range, fetch_sized
from tests.doubles.stores import WatchedStore, memory_store

DATA = b"0123456789"
SHA256 = hashlib.sha256(DATA).hexdigest()


async def refused(fetch: Awaitable[object]) -> tuple[str, str | None, str | None, int | None]:
    with pytest.raises(DeltastoreError) as caught:
        await fetch
    error = caught.value
    return (error.code, error.where, error.rule, error.offset)


async def holding(data: bytes) -> Store:
    store = memory_store()
    await store.put("k", data)
    return store


async def test_the_object_that_is_meant() -> None:
    store = await holding(DATA)
    assert await fetch_named(store, "k", nbytes=10, sha256=SHA256, named_by="a test", rule="DS061") == DATA
    assert await fetch_sized(store, "k", nbytes=10, named_by="a test", rule="DS072") == DATA
    assert await fetch_range(store, "k", 2, 3, named_by="a test", rule="DS073") == b"234"


@pytest.mark.spec("DS063")
@pytest.mark.parametrize(
    ("data", "code"), [(DATA + b"x", "too_large"), (DATA[:9], "bad_length"), (DATA[::-1], "bad_hash")]
)
async def test_another_object(data: bytes, code: str) -> None:
    store = await holding(data)
    fetch = fetch_named(store, "k", nbytes=10, sha256=SHA256, named_by="a test", rule="DS061")
    assert await refused(fetch) == (code, "k", "DS061", None)
    fetch = fetch_named(store, "k", nbytes=10, sha256=SHA256, named_by="a test", rule="DS073")
    assert await refused(fetch) == (code, "k", "DS073", None)
    await store.delete("k")
    fetch = fetch_named(store, "k", nbytes=10, sha256=SHA256, named_by="a test", rule="DS073")
    assert await refused(fetch) == ("lost_object", "k", "DS063", None)


class Shorter(WatchedStore):
    """Answers a range with a byte less, whatever the object has."""

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return (await super().get_range(key, start, length))[:-1]


async def test_a_range_is_all_there_or_refused() -> None:
    store = await holding(DATA)
    fetch = fetch_range(store, "k", 8, 3, named_by="a test", rule="DS061")
    assert await refused(fetch) == ("bad_length", "k", "DS061", None)
    fetch = fetch_range(Shorter(store), "k", 4, 3, named_by="a test", rule="DS073")
    assert await refused(fetch) == ("bad_length", "k", "DS073", 4)
    fetch = fetch_range(store, "other", 4, 3, named_by="a test", rule="DS073")
    assert await refused(fetch) == ("lost_object", "other", "DS063", None)


@pytest.mark.spec("DS001", "DS100")
async def test_what_stands_in_a_folder_and_is_no_object(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    await store.put("k", DATA)
    (tmp_path / "link").symlink_to("k")
    os.mkfifo(tmp_path / "pipe")
    assert await refused(store.get("link", limit=20)) == ("bad_key", "link", "DS001", None)
    assert await refused(store.get("pipe", limit=20)) == ("bad_length", "pipe", "DS063", None)
    assert await refused(store.get("k", limit=9)) == ("too_large", "k", "DS100", None)
    for kind, key in ((InputError, "../k"), (InputError, "link"), (CorruptError, "pipe")):
        with pytest.raises(kind) as caught:
            await fetch_named(store, key, nbytes=10, sha256=SHA256, named_by="a test", rule="DS061")
        assert caught.value.rule == ("DS061" if kind is CorruptError else "DS001")
