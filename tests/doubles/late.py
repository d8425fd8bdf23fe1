"""Stores whose answers are wrong about what was done, come late, or never."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from deltastore.stores.base import Data, ObjectInfo
from tests.doubles.stores import WatchedStore, failure

Answer = TypeVar("Answer")


class DenyingStore(WatchedStore):
    """Says that a record's slot is taken though it was this very call that took it."""

    async def put_if_absent(self, key: str, data: Data) -> bool:
        created = await super().put_if_absent(key, data)
        return created and not key.startswith("log/")


class LateStore(WatchedStore):
    """While ``slow``, creations fail and are executed when they ``arrive``; ``arriving``: before the next."""

    def __init__(self, inner: WatchedStore) -> None:
        super().__init__(inner)
        self.slow = self.arriving = False
        self.late: list[tuple[str, bytes]] = []

    async def put_if_absent(self, key: str, data: Data) -> bool:
        if self.slow:
            self.late.append((key, bytes(data)))
            raise failure(key)
        if self.arriving:
            await self.arrive()
        return await super().put_if_absent(key, data)

    async def arrive(self) -> None:
        """Execute what is on its way."""
        for key, data in self.late:
            await self.inner.put_if_absent(key, data)
        self.late.clear()


class StuckStore(WatchedStore):
    """The ``left``-th call from now on never returns."""

    def __init__(self, inner: WatchedStore, takes_effect: bool) -> None:
        super().__init__(inner)
        self.takes_effect = takes_effect
        self.left = 0
        self.reached = asyncio.Event()

    async def _passed(self, effect: Awaitable[Answer]) -> Answer:
        self.left -= 1
        if self.left != 0:
            return await effect
        request = asyncio.ensure_future(effect)
        if not self.takes_effect:
            request.cancel()
        await asyncio.wait({request})
        self.reached.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody wakes it")

    async def get(self, key: str, *, limit: int) -> bytes:
        return await self._passed(super().get(key, limit=limit))

    async def put(self, key: str, data: Data) -> None:
        await self._passed(super().put(key, data))

    async def put_if_absent(self, key: str, data: Data) -> bool:
        return await self._passed(super().put_if_absent(key, data))

    async def stat(self, key: str) -> ObjectInfo | None:
        return await self._passed(super().stat(key))
