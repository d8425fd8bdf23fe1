"""Looking again and again for something that another process will put into the store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

from deltastore.errors import StoreError

__all__ = ["found_within", "ticks"]

Found = TypeVar("Found")

_FIRST_PAUSE: Final = 0.005
_LONGEST_PAUSE: Final = 0.25
_GROWTH: Final = 1.5


async def ticks(seconds: float) -> AsyncIterator[int]:
    """0, 1, 2 and so on: at once, then at growing distances with jitter, the last after ``seconds``."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    number, pause = 0, _FIRST_PAUSE
    while True:
        yield number
        left = deadline - clock()
        if left <= 0:
            return
        await asyncio.sleep(min(left, pause * random.uniform(0.5, 1)))
        number, pause = number + 1, min(pause * _GROWTH, _LONGEST_PAUSE)


async def found_within(seconds: float, look: Callable[[int], Awaitable[Found | None]]) -> Found | None:
    """What ``look(tick)`` finds, once it is not None; None when it found nothing in ``seconds``.

    A store that fails meanwhile is looked at again; its error is raised when the last look met one.
    """
    failure: StoreError | None = None
    async for tick in ticks(seconds):
        try:
            found = await look(tick)
        except StoreError as error:
            if error.code != "store_failed":
                raise
            failure = error
            continue
        failure = None
        if found is not None:
            return found
    if failure is not None:
        raise failure
    return None
