"""Creation by looking first: right for one writer, and it says so when there are two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deltastore.errors import StoreError
from deltastore.stores import Data, SingleWriterStore
from deltastore.stores.memory import MEMORY_STORES, MemoryStore
from deltastore.stores.wrapped import WrappedStore

from .wrapper_conformance import WrapperConformance


class Unconditional(MemoryStore):
    """Ignores the condition, as some S3 servers do; ``meddling`` is what a second writer then puts there."""

    meddling: bytes | None = None

    async def put(self, key: str, data: Data) -> None:
        await super().put(key, data)
        if self.meddling is not None:
            await super().put(key, self.meddling)

    async def put_if_absent(self, key: str, data: Data) -> bool:
        await super().put(key, data)
        return True


@pytest.fixture
def inner() -> Iterator[Unconditional]:
    yield Unconditional("memory://single")
    del MEMORY_STORES["single"]


@pytest.fixture
def store(inner: Unconditional) -> SingleWriterStore:
    return SingleWriterStore(inner)


class TestOneWriter(WrapperConformance):
    """The suite. In memory nothing waits, so that even its racing tasks come one after the other."""

    @pytest.fixture
    def store(self) -> Iterator[SingleWriterStore]:
        yield SingleWriterStore(MemoryStore("memory://one-writer"))
        del MEMORY_STORES["one-writer"]


async def test_it_creates_where_the_inner_store_would_overwrite(store: SingleWriterStore) -> None:
    assert await store.put_if_absent("log/0", b"first") is True
    assert await store.put_if_absent("log/0", b"second") is False
    assert await store.get("log/0", limit=9) == b"first"
    assert await store.inner.put_if_absent("log/0", b"second") is True


@pytest.mark.parametrize("meddling", [b"other", b"one that is longer", b""])
async def test_a_second_writer_in_between_is_named(
    inner: Unconditional, store: SingleWriterStore, meddling: bytes
) -> None:
    inner.meddling = meddling
    with pytest.raises(StoreError) as caught:
        await store.put_if_absent("log/0", b"mine!")
    assert (caught.value.code, caught.value.where) == ("store_failed", "log/0")
    assert "only writer" in str(caught.value)


async def test_a_deletion_in_between_is_named(inner: Unconditional) -> None:
    class Forgetful(WrappedStore):
        async def put(self, key: str, data: Data) -> None:
            await self.inner.put(key, data)
            await self.inner.delete(key)

    with pytest.raises(StoreError, match="only writer"):
        await SingleWriterStore(Forgetful(inner)).put_if_absent("log/0", b"mine")


async def test_it_is_not_probed_and_has_the_inner_url(inner: Unconditional, store: SingleWriterStore) -> None:
    assert store.probed_at_start is False
    assert store.url == inner.url
