"""The store that fails on purpose: every fault does what its name says, and is the same for the same seed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from deltastore.errors import NotFoundError, StoreError
from deltastore.stores import Fault, Faults, FaultyStore, ObjectInfo, Store
from deltastore.stores.faults import Kind, Operation
from deltastore.stores.memory import MEMORY_STORES, MemoryStore

from .operations import OPERATIONS, keys_of
from .wrapper_conformance import WrapperConformance


@pytest.fixture
def inner() -> Iterator[MemoryStore]:
    yield MemoryStore("memory://faulty")
    del MEMORY_STORES["faulty"]


@pytest.fixture
def store(inner: MemoryStore) -> FaultyStore:
    return FaultyStore(inner, Faults(), seed=1)


class TestWithoutFaults(WrapperConformance):
    """The suite."""


class TestDelaysAlone(WrapperConformance):
    """A store that is only slow keeps every promise."""

    @pytest.fixture
    def store(self, inner: MemoryStore) -> FaultyStore:
        plan = Faults((Fault("delayed", 0.3),), delay_seconds=0.001)
        return FaultyStore(inner, plan, seed=2)


def faulty(inner: Store, kind: Kind, *at: int, operations: tuple[Operation, ...] = ()) -> FaultyStore:
    """Only these calls among those that the kind can strike (none given: all of them)."""
    plan = Faults((Fault(kind, operations=operations, at=at),), stall_seconds=0.001, land_after=2)
    return FaultyStore(inner, plan, seed=3)


async def fails(answer: object) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await answer  # type: ignore[misc]
    assert caught.value.code == "store_failed"
    return caught.value


@pytest.mark.parametrize("name", OPERATIONS)
async def test_refused(inner: MemoryStore, name: str) -> None:
    await inner.put("k", b"before")
    store = faulty(inner, "refused", 1)
    error = await fails(OPERATIONS[name](store, "k"))
    assert error.where == "k"
    assert "nothing was applied" in str(error)
    assert await inner.get("k", limit=9) == b"before"
    assert [str(injected) for injected in store.journal] == [f"call 1: {name} k: refused"]
    await OPERATIONS[name](store, "other" if name == "put_if_absent" else "k")


@pytest.mark.parametrize("name", ["put", "put_if_absent"])
async def test_lost_after_it_was_applied(inner: MemoryStore, name: str) -> None:
    store = faulty(inner, "lost", 1)
    await fails(OPERATIONS[name](store, "k"))
    assert await inner.get("k", limit=9) == b"x"


async def test_lost_after_it_was_deleted_and_lost_reads(inner: MemoryStore) -> None:
    await inner.put("k", b"x")
    store = faulty(inner, "lost")
    await fails(store.get("k", limit=9))
    await fails(store.get_range("k", 0, 1))
    await fails(store.get_changed("k", tag=None, limit=9))
    await fails(store.stat("k"))
    await fails(store.delete("k"))
    assert await inner.stat("k") is None


@pytest.mark.parametrize("seed", range(4))
async def test_a_lost_listing_ends_in_an_error_never_in_silence(inner: MemoryStore, seed: int) -> None:
    for number in range(4):
        await inner.put(f"k{number}", b"x")
    store = FaultyStore(inner, Faults((Fault("lost"),)), seed=seed)
    listed: list[str] = []

    async def read() -> None:
        async for info in store.list(""):
            listed.append(info.key)

    await fails(read())
    assert listed == ["k0", "k1", "k2", "k3"][: len(listed)]


async def test_late_write_lands_after_further_calls(inner: MemoryStore) -> None:
    store = faulty(inner, "late", 1)
    data = bytearray(b"late")
    await fails(store.put("k", data))
    data[:] = b"gone"
    for _ in range(2):
        assert await store.stat("k") is None
    assert await store.get("k", limit=9) == b"late"
    assert [injected.kind for injected in store.journal] == ["late", "landed"]


async def test_late_creation_meets_one_that_came_between(inner: MemoryStore) -> None:
    store = faulty(inner, "late", 1)
    await fails(store.put_if_absent("k", b"late"))
    assert await store.put_if_absent("k", b"between") is True
    await store.settle()
    assert await inner.get("k", limit=9) == b"between"


async def test_late_deletion(inner: MemoryStore) -> None:
    store = faulty(inner, "late", operations=("delete",))
    await store.put("k", b"x")
    await fails(store.delete("k"))
    assert await inner.stat("k") is not None
    await store.settle()
    assert await inner.stat("k") is None
    # What has landed does not land again.
    await store.put("k", b"y")
    await store.settle()
    assert await inner.stat("k") is not None


async def test_repeated_write_undoes_what_came_between(inner: MemoryStore) -> None:
    store = faulty(inner, "repeated", 1)
    await store.put("k", b"first")
    await store.put("k", b"second")
    assert await store.get("k", limit=9) == b"second"
    assert await store.get("k", limit=9) == b"first"


async def test_landings_on_a_store_that_fails_are_nobodys_error(inner: MemoryStore) -> None:
    broken = FaultyStore(inner, Faults((Fault("refused", at=(1,)),)), seed=0)
    store = faulty(broken, "late", 1)
    await fails(store.put("k", b"x"))
    await store.settle()
    assert await inner.stat("k") is None


async def test_stalled_and_then_failed(inner: MemoryStore) -> None:
    store = faulty(inner, "stalled", 1)
    await fails(store.put("k", b"x"))
    assert await inner.stat("k") is None


async def test_stalled_until_cancelled(inner: MemoryStore) -> None:
    store = FaultyStore(inner, Faults((Fault("stalled"),), stall_seconds=None), seed=0)
    task = asyncio.create_task(store.put("k", b"x"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [injected.kind for injected in store.journal] == ["stalled"]
    assert await inner.stat("k") is None


async def test_delayed_is_answered_all_the_same(inner: MemoryStore) -> None:
    plan = Faults((Fault("delayed"), Fault("refused", at=(2,))), delay_seconds=0.001)
    store = FaultyStore(inner, plan, seed=0)
    await store.put("k", b"x")
    await fails(store.put("k", b"y"))
    assert [injected.kind for injected in store.journal] == ["delayed", "delayed", "refused"]
    assert await inner.get("k", limit=9) == b"x"


async def test_truncated_says_nothing(inner: MemoryStore) -> None:
    await inner.put("k", b"0123456789")
    await inner.put("empty", b"")
    store = faulty(inner, "truncated")
    whole = await store.get("k", limit=10)
    part = await store.get_range("k", 2, 8)
    tagged = await store.get_changed("k", tag=None, limit=10)
    assert tagged is not None
    for found, full in ((whole, b"0123456789"), (part, b"23456789"), (tagged.data, b"0123456789")):
        assert len(found) < len(full)
        assert full.startswith(found)
    assert await store.get("empty", limit=10) == b""
    assert await store.get_changed("k", tag=tagged.tag, limit=10) is None
    assert [injected.operation for injected in store.journal] == ["get", "get_range", "get_changed"]


async def test_stale_listing_misses_new_objects_only(inner: MemoryStore) -> None:
    await inner.put("old", b"x")
    store = FaultyStore(inner, Faults((Fault("stale_list"),), recent_calls=3), seed=0)
    await store.put("a", b"x")
    assert await store.put_if_absent("b", b"x") is True
    assert await store.put_if_absent("old", b"x") is False
    assert await keys_of(store) == ["old"]
    assert await keys_of(store) == ["a", "old"]
    assert await keys_of(store) == ["a", "b", "old"]


async def test_stale_reads_miss_new_objects_only(inner: MemoryStore) -> None:
    await inner.put("old", b"x")
    store = FaultyStore(inner, Faults((Fault("stale_absent"),), recent_calls=3), seed=0)
    await store.put("new", b"y")
    assert await store.stat("new") is None
    for read in (store.get("new", limit=9), store.get_range("new", 0, 1)):
        with pytest.raises(NotFoundError) as caught:
            await read
        assert caught.value.code == "no_object"
    assert await store.get("old", limit=9) == b"x"
    assert await store.stat("new") == ObjectInfo("new", 1)
    await store.put("new", b"z")
    await store.delete("new")
    assert await store.stat("new") is None
    assert [injected.kind for injected in store.journal] == ["stale_absent"] * 3


async def test_it_stands_for_its_inner_store(inner: MemoryStore, store: FaultyStore) -> None:
    assert store.url == inner.url
    assert store.probed_at_start == inner.probed_at_start
