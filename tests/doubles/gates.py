"""A store whose writes wait until they are let through."""

from __future__ import annotations

import asyncio
from collections import deque

from deltastore.stores.base import Data, Store
from tests.doubles.stores import WatchedStore


class GatedStore(WatchedStore):
    """While ``shut``, writes under ``prefix`` wait; ``through`` lets some of them pass, oldest first."""

    def __init__(self, inner: Store, prefix: str = "packs/") -> None:
        super().__init__(inner)
        self.prefix = prefix
        self.shut = False
        self.most = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._arrived = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Writes that wait now."""
        return sum(not one.done() for one in self._waiting)

    async def reached(self, count: int = 1) -> None:
        """Until so many writes wait."""
        while self.waiting < count:
            self._arrived.clear()
            await self._arrived.wait()

    def through(self, count: int) -> None:
        """Let so many pass."""
        while count and self._waiting:
            one = self._waiting.popleft()
            if not one.done():
                one.set_result(None)
                count -= 1

    def open(self) -> None:
        """Let everything pass from now on."""
        self.shut = False
        self.through(len(self._waiting))

    async def _pass(self, key: str) -> None:
        if self.shut and key.startswith(self.prefix):
            one = asyncio.get_running_loop().create_future()
            self._waiting.append(one)
            self.most = max(self.most, self.waiting)
            self._arrived.set()
            await one

    async def put(self, key: str, data: Data) -> None:
        await self._pass(key)
        await super().put(key, data)

    async def put_if_absent(self, key: str, data: Data) -> bool:
        await self._pass(key)
        return await super().put_if_absent(key, data)
