"""A store that remembers what it was asked for, and when: to count requests that wait for each other."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from deltastore.stores.base import Data, ObjectInfo, Store, Tagged
from deltastore.stores.wrapped import WrappedStore

__all__ = ["RecordingStore", "Request", "longest_chain"]

_Fetched = list[bytes]


@dataclass(frozen=True, slots=True)
class Request:
    """One operation on a store that has ended: well, or with an error. ``began``, ``ended``: seconds."""

    operation: str
    key: str
    nbytes: int
    began: float
    ended: float


class RecordingStore(WrappedStore):
    """Tells ``note`` of each operation on ``inner`` that has ended; by default ``requests`` collects them."""

    def __init__(self, inner: Store, note: Callable[[Request], None] | None = None) -> None:
        super().__init__(inner)
        self.requests: list[Request] = []
        self._note = note or self.requests.append

    async def get(self, key: str, *, limit: int) -> bytes:
        with self._timed("get", key) as fetched:
            fetched.append(data := await self.inner.get(key, limit=limit))
        return data

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        with self._timed("get_range", key, length):
            return await self.inner.get_range(key, start, length)

    async def get_changed(self, key: str, *, tag: str | None, limit: int) -> Tagged | None:
        with self._timed("get_changed", key):
            return await self.inner.get_changed(key, tag=tag, limit=limit)

    async def put(self, key: str, data: Data) -> None:
        with self._timed("put", key, memoryview(data).nbytes):
            await self.inner.put(key, data)

    async def put_if_absent(self, key: str, data: Data) -> bool:
        with self._timed("put_if_absent", key, memoryview(data).nbytes):
            return await self.inner.put_if_absent(key, data)

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        with self._timed("list", prefix):
            async for info in self.inner.list(prefix, after=after):
                yield info

    async def delete(self, key: str) -> None:
        with self._timed("delete", key):
            await self.inner.delete(key)

    async def stat(self, key: str) -> ObjectInfo | None:
        with self._timed("stat", key):
            return await self.inner.stat(key)

    @contextmanager
    def _timed(self, operation: str, key: str, nbytes: int = 0) -> Iterator[_Fetched]:
        """``nbytes`` are known before, or are those that the caller appends."""
        fetched: _Fetched = []
        began = time.perf_counter()
        try:
            yield fetched
        finally:
            nbytes += sum(map(len, fetched))
            self._note(Request(operation, key, nbytes, began, time.perf_counter()))


def longest_chain(requests: Iterable[Request]) -> int:
    """The most requests of which each began only after the one before had ended.

    So many times does whoever made them wait for the store, however many ran at once.
    """
    length, ended = 0, float("-inf")
    for request in sorted(requests, key=lambda one: one.ended):
        if request.began >= ended:
            length, ended = length + 1, request.ended
    return length
