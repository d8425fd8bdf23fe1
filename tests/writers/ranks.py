"""The store as one rank of a team sees it: it may lose its connection, be interrupted, or die at any call."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from deltastore.errors import StoreError
from deltastore.stores.base import Data, ObjectInfo, Store, Tagged
from deltastore.stores.wrapped import WrappedStore

__all__ = ["Casualty", "Dead", "Outage", "RankStore"]

Answer = TypeVar("Answer")
WRITES = frozenset({"put", "put_if_absent"})


class Dead(BaseException):
    """The process is gone: nothing that it would do after this happens."""


@dataclass(frozen=True)
class Outage:
    """Every call on keys that start with ``prefix`` fails: ``refused``, ``lost`` (applied all the same), or
    ``held`` (the first write arrives when the store is told to deliver it)."""

    prefix: str
    how: Literal["refused", "lost", "held"]
    operations: frozenset[str] = frozenset({"put", "put_if_absent", "get", "stat", "get_range"})


@dataclass(frozen=True)
class Casualty:
    """At call ``number`` from now on, before or after it is applied, the rank is cancelled, or dies.

    ``meddled``: the rank is well, and its store's ``meddle`` is called.
    """

    number: int
    when: Literal["before", "after"]
    how: Literal["cancelled", "dead", "meddled"]


class RankStore(WrappedStore):
    """One rank's way to the store. ``calls``: (operation, key) of each call so far."""

    def __init__(self, inner: Store, watch: Callable[[str, bytes], None] | None = None) -> None:
        super().__init__(inner)
        self.calls: list[tuple[str, str]] = []
        self.outage: Outage | None = None
        self.casualty: Casualty | None = None
        self.victim: asyncio.Task[Any] | None = None
        self.meddle: Callable[[], Awaitable[None]] | None = None
        self.held: list[tuple[str, bytes]] = []
        self.dead = False
        self._watch = watch
        self._since = 0

    def strike(self, casualty: Casualty | None, victim: asyncio.Task[Any] | None = None) -> None:
        """What shall happen to ``victim``, the task that uses this store."""
        self.casualty, self.victim, self._since = casualty, victim, len(self.calls)

    async def deliver(self) -> None:
        """What was held back arrives after all."""
        held, self.held = self.held, []
        for key, data in held:
            with contextlib.suppress(StoreError):
                await self.inner.put_if_absent(key, data)

    async def _strike(self, when: str) -> None:
        casualty = self.casualty
        if self.dead:
            raise Dead
        if casualty is None or casualty.when != when or len(self.calls) - self._since != casualty.number:
            return
        self.casualty = None
        if casualty.how == "dead":
            self.dead = True
            raise Dead
        if casualty.how == "meddled":
            if self.meddle is not None:
                await self.meddle()
        elif self.victim is not None and not self.victim.done():
            self.victim.cancel()
            await asyncio.Event().wait()  # until that reaches this call

    async def _call(
        self, operation: str, key: str, work: Callable[[], Awaitable[Answer]], data: Data | None = None
    ) -> Answer:
        if self.dead:
            raise Dead
        self.calls.append((operation, key))
        await self._strike("before")
        if data is not None and self._watch is not None:
            self._watch(key, bytes(data))
        outage = self.outage
        struck = outage is not None and operation in outage.operations and key.startswith(outage.prefix)
        if outage is None or not struck:
            answer = await work()
            await self._strike("after")
            return answer
        if operation in WRITES and outage.how == "lost":
            await work()
        if operation == "put_if_absent" and outage.how == "held" and not self.held and data is not None:
            self.held.append((key, bytes(data)))
        await self._strike("after")
        raise StoreError("store_failed", f"no connection for {key}; try again", where=key)

    async def get(self, key: str, *, limit: int) -> bytes:
        return await self._call("get", key, lambda: self.inner.get(key, limit=limit))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return await self._call("get_range", key, lambda: self.inner.get_range(key, start, length))

    async def get_changed(self, key: str, *, tag: str | None, limit: int) -> Tagged | None:
        return await self._call("get", key, lambda: self.inner.get_changed(key, tag=tag, limit=limit))

    async def put(self, key: str, data: Data) -> None:
        await self._call("put", key, lambda: self.inner.put(key, data), data)

    async def put_if_absent(self, key: str, data: Data) -> bool:
        return await self._call("put_if_absent", key, lambda: self.inner.put_if_absent(key, data), data)

    async def stat(self, key: str) -> ObjectInfo | None:
        return await self._call("stat", key, lambda: self.inner.stat(key))

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        async def collect() -> list[ObjectInfo]:
            return [info async for info in self.inner.list(prefix, after=after)]

        for info in await self._call("list", prefix, collect):
            yield info
