"""How many objects are looked at side by side, and how much memory they may take together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["Room"]


class Room:
    """Room for ``jobs`` objects of ``memory`` bytes together; whoever asks first gets it first.

    What one object takes is asked for at once, so that nobody waits while he holds a part of it.
    """

    def __init__(self, jobs: int, memory: int) -> None:
        self.jobs = jobs
        self._idle = jobs
        self._memory = memory
        self._free = memory
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def of(self, nbytes: int) -> AsyncIterator[None]:
        """Room for an object that takes ``nbytes``; for one that takes more than there is, all of it."""
        wanted = min(nbytes, self._memory)
        await self._enter(wanted)
        try:
            yield
        finally:
            self._leave(wanted)

    async def _enter(self, wanted: int) -> None:
        granted = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, granted))
        self._admit()
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():
                self._leave(wanted)
            self._admit()
            raise

    def _leave(self, held: int) -> None:
        self._idle += 1
        self._free += held
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            wanted, granted = self._waiting[0]
            if granted.cancelled():
                self._waiting.popleft()
                continue
            if not self._idle or wanted > self._free:
                return
            self._waiting.popleft()
            self._idle -= 1
            self._free -= wanted
            granted.set_result(None)
