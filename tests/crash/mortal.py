"""A store whose user is killed, as by kill -9, at a call that was chosen before."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from deltastore.errors import NotFoundError
from deltastore.stores.base import Data, ObjectInfo, Store
from deltastore.stores.wrapped import WrappedStore

__all__ = ["Death", "MortalStore", "When"]

Answer = TypeVar("Answer")
When = Literal["before", "during", "after"]

_ON_ITS_WAY_SECONDS: Final = 0.002
"""How long a write has been on its way when its writer dies: it may have arrived, be late, or be lost."""


@dataclass(frozen=True, slots=True)
class Death:
    """At the ``number``-th new call, from 1. ``during``: of writes only.

    A call is new by its operation and key, and afterwards also by its answer: who looks for an object again
    and again makes one new call before it, and two after it, when it is absent and when it is there.
    """

    when: When
    number: int


class MortalStore(WrappedStore):
    """Passes every call on until ``death``; with none, for ever."""

    def __init__(self, inner: Store, death: Death | None) -> None:
        super().__init__(inner)
        self._death = death
        self._seen: set[tuple[object, ...]] = set()

    def _due(self, when: When, *event: object) -> bool:
        if self._death is None or when != self._death.when or event in self._seen:
            return False
        self._seen.add(event)
        return len(self._seen) == self._death.number

    def _strike(self, when: When, *event: object) -> None:
        if self._due(when, *event):
            os.kill(os.getpid(), signal.SIGKILL)

    async def _read(self, operation: str, key: str, answer: Awaitable[Answer]) -> Answer:
        self._strike("before", operation, key)
        try:
            found = await answer
        except NotFoundError:
            self._strike("after", operation, key, False)
            raise
        self._strike("after", operation, key, found is not None)
        return found

    async def _write(self, operation: str, key: str, answer: Awaitable[Answer]) -> Answer:
        self._strike("before", operation, key)
        if self._due("during", operation, key):
            await asyncio.wait({asyncio.ensure_future(answer)}, timeout=_ON_ITS_WAY_SECONDS)
            os.kill(os.getpid(), signal.SIGKILL)
        done = await answer
        self._strike("after", operation, key)
        return done

    async def get(self, key: str, *, limit: int) -> bytes:
        return await self._read("get", key, super().get(key, limit=limit))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return await self._read("get_range", key, super().get_range(key, start, length))

    async def stat(self, key: str) -> ObjectInfo | None:
        return await self._read("stat", key, super().stat(key))

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        self._strike("before", "list", prefix)
        async for info in super().list(prefix, after=after):
            yield info
        self._strike("after", "list", prefix)

    async def put(self, key: str, data: Data) -> None:
        await self._write("put", key, super().put(key, data))

    async def put_if_absent(self, key: str, data: Data) -> bool:
        return await self._write("put_if_absent", key, super().put_if_absent(key, data))
