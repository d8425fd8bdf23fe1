"""Stores that watch, fail and lie: each wraps a sound one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from itertools import count

from deltastore.errors import StoreError
from deltastore.stores.base import Data, ObjectInfo, Store
from deltastore.stores.memory import MemoryStore

READS = frozenset({"get", "get_range", "stat", "list"})
WRITES = frozenset({"put", "put_if_absent", "delete"})

_numbers = count()


def memory_store() -> MemoryStore:
    """An empty store that nobody else has."""
    return MemoryStore(f"memory://tests/{next(_numbers)}")


def failure(where: str = "") -> StoreError:
    """What a store raises whose server is gone."""
    return StoreError("store_failed", f"the server is gone; try again {where}")


@dataclass(frozen=True)
class Call:
    """The ``number``-th call of a store, from 1."""

    number: int
    operation: str
    key: str


Hook = Callable[[Call], None]


class WatchedStore(Store):
    """Counts calls and bytes, and runs ``before`` and ``after`` around each call; either may raise."""

    def __init__(self, inner: Store, *, before: Hook | None = None, after: Hook | None = None) -> None:
        self.inner = inner
        self.before = before
        self.after = after
        self.calls: list[Call] = []
        self.fetched = 0

    @property
    def url(self) -> str:
        return self.inner.url

    def keys(self, *operations: str) -> list[str]:
        """The keys of all calls so far of these operations, in order."""
        return [call.key for call in self.calls if call.operation in operations]

    def forget(self) -> None:
        """Start counting anew."""
        self.calls.clear()
        self.fetched = 0

    def _begin(self, operation: str, key: str) -> Call:
        call = Call(len(self.calls) + 1, operation, key)
        self.calls.append(call)
        if self.before is not None:
            self.before(call)
        return call

    def _end(self, call: Call) -> None:
        if self.after is not None:
            self.after(call)

    async def get(self, key: str, *, limit: int) -> bytes:
        call = self._begin("get", key)
        data = await self.inner.get(key, limit=limit)
        self.fetched += len(data)
        self._end(call)
        return data

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        call = self._begin("get_range", key)
        data = await self.inner.get_range(key, start, length)
        self.fetched += len(data)
        self._end(call)
        return data

    async def put(self, key: str, data: Data) -> None:
        call = self._begin("put", key)
        await self.inner.put(key, data)
        self._end(call)

    async def put_if_absent(self, key: str, data: Data) -> bool:
        call = self._begin("put_if_absent", key)
        created = await self.inner.put_if_absent(key, data)
        self._end(call)
        return created

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        call = self._begin("list", prefix)
        async for info in self.inner.list(prefix, after=after):
            yield info
        self._end(call)

    async def delete(self, key: str) -> None:
        call = self._begin("delete", key)
        await self.inner.delete(key)
        self._end(call)

    async def stat(self, key: str) -> ObjectInfo | None:
        call = self._begin("stat", key)
        info = await self.inner.stat(key)
        self._end(call)
        return info


class RetryingStore(WatchedStore):
    """Says that a key is taken though it was this very call that took it: a client library that retries."""

    async def put_if_absent(self, key: str, data: Data) -> bool:
        await super().put_if_absent(key, data)
        return False


def fail_at(number: int) -> Hook:
    """Fail the ``number``-th call."""

    def hook(call: Call) -> None:
        if call.number == number:
            raise failure(call.key)

    return hook


def fail_from(number: int) -> Hook:
    """Fail the ``number``-th call and all after it."""

    def hook(call: Call) -> None:
        if call.number >= number:
            raise failure(call.key)

    return hook


def fail_once(operation: str, prefix: str = "") -> Hook:
    """Fail the next call of ``operation`` on a key that starts so, and none after it."""
    spent = False

    def hook(call: Call) -> None:
        nonlocal spent
        if not spent and call.operation == operation and call.key.startswith(prefix):
            spent = True
            raise failure(call.key)

    return hook


def fail_always(*operations: str, prefix: str = "") -> Hook:
    """Fail every call of these operations on keys that start so."""

    def hook(call: Call) -> None:
        if call.operation in operations and call.key.startswith(prefix):
            raise failure(call.key)

    return hook


async def contents(store: Store) -> dict[str, bytes]:
    """Every object of a store."""
    return {info.key: await store.get(info.key, limit=info.size) async for info in store.list("")}


async def restore(store: Store, objects: dict[str, bytes]) -> None:
    """Make a store hold exactly these objects."""
    for key in [info.key async for info in store.list("") if info.key not in objects]:
        await store.delete(key)
    for key, data in objects.items():
        await store.put(key, data)


async def copied(objects: dict[str, bytes]) -> MemoryStore:
    """A new store with these objects."""
    store = memory_store()
    await restore(store, objects)
    return store


def flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    """The same bytes with one bit changed."""
    return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
