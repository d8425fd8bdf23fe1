"""Reading in order from something distant: the next few places are on their way while one is looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Generic, TypeVar

__all__ = ["ReadAhead"]

Place = tuple[int, int]
Value = TypeVar("Value")


class ReadAhead(Generic[Value]):
    """What ``read(*place)`` gives, for the places last wanted: in memory or on its way. ``close`` it."""

    def __init__(self, read: Callable[[int, int], Coroutine[Any, Any, Value]]) -> None:
        self._read = read
        self._tasks: dict[Place, asyncio.Task[Value]] = {}

    async def get(self, wanted: Sequence[Place]) -> Value:
        """The value at the first of ``wanted``; the others are begun, and all else is given up.

        Raises what ``read`` raises; nothing of ``wanted`` is kept then.
        """
        await self._drop([place for place in self._tasks if place not in wanted])
        for place in wanted:
            if place not in self._tasks:
                self._tasks[place] = asyncio.create_task(self._read(*place))
        try:
            return await self._tasks[wanted[0]]
        except BaseException:
            await self._drop(wanted)
            raise

    async def close(self) -> None:
        """Give up what is still on its way."""
        await self._drop(list(self._tasks))

    async def _drop(self, places: Iterable[Place]) -> None:
        tasks = [self._tasks.pop(place) for place in places if place in self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
