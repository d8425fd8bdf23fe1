"""Fetching ahead as far as memory allows, and taking things in their order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["by_weight"]

Item = TypeVar("Item")
Value = TypeVar("Value")


async def by_weight(
    items: AsyncGenerator[Item, None],
    fetch: Callable[[Item], Coroutine[Any, Any, Value]],
    weight: Callable[[Item], int],
    *,
    budget: int,
    most: int,
) -> AsyncGenerator[Value, None]:
    """What ``fetch`` gives for each item, in turn.

    At most ``most`` are on their way or in memory, the one last given included, and together they weigh at
    most ``budget``, or are one. Close it (``contextlib.aclosing``): what is on its way is given up then.
    """
    running: deque[tuple[asyncio.Task[Value], int]] = deque()
    held = 0
    try:
        following: Item | None = await anext(items, None)
        while True:
            while following is not None and len(running) < most:
                weighs = weight(following)
                if running and held + weighs > budget:
                    break
                running.append((asyncio.create_task(fetch(following)), weighs))
                held += weighs
                following = await anext(items, None)
            if not running:
                return
            task, weighs = running.popleft()
            yield await task
            held -= weighs
    finally:
        for task, _ in running:
            task.cancel()
        await asyncio.gather(*(task for task, _ in running), return_exceptions=True)
        await items.aclose()
