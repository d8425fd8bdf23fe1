"""Fetching several things at once and taking them in their order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from itertools import islice
from typing import Any, TypeVar

__all__ = ["in_order"]

Item = TypeVar("Item")
Value = TypeVar("Value")


async def in_order(
    items: Iterable[Item], fetch: Callable[[Item], Coroutine[Any, Any, Value]], *, ahead: int
) -> AsyncGenerator[Value, None]:
    """What ``fetch`` gives for each item, in turn. ``ahead`` of them are on their way or in memory.

    Close it (``contextlib.aclosing``): what is on its way is given up then.
    """
    waiting = iter(items)
    running: deque[asyncio.Task[Value]] = deque()
    try:
        while True:
            for item in islice(waiting, ahead - len(running)):
                running.append(asyncio.create_task(fetch(item)))
            if not running:
                return
            yield await running.popleft()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
