"""Plain requests, several at once: what a store does when nobody stands between it and the data."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from deltastore.anchors.together import together
from deltastore.stores.base import Store

__all__ = ["at_once", "put_all"]

Item = TypeVar("Item")


async def put_all(store: Store, sizes: Sequence[int], most: int, *, keep: bool = False) -> float:
    """Seconds to put objects of these sizes, at most ``most`` at once; removed again unless ``keep``.

    Their keys are ``plain/0``, ``plain/1`` and so on.
    """
    data = memoryview(os.urandom(max(sizes)))
    keys = {f"plain/{number}": size for number, size in enumerate(sizes)}
    seconds = await at_once(lambda key: store.put(key, data[: keys[key]]), keys, most)
    if not keep:
        await at_once(store.delete, keys, most)
    return seconds


async def at_once(work: Callable[[Item], Awaitable[object]], items: Iterable[Item], most: int) -> float:
    """Seconds to do ``work`` on every item, at most ``most`` at once. The first failure ends all."""
    room = asyncio.Semaphore(most)

    async def one(item: Item) -> None:
        async with room:
            await work(item)

    began = time.perf_counter()
    async with together() as group:
        for item in items:
            group.create_task(one(item))
    return time.perf_counter() - began
