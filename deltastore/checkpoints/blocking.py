"""File work in the event loop's default thread pool, that never outlives the call."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

__all__ = ["blocking"]

_Result = TypeVar("_Result")


async def blocking(work: Callable[[], _Result]) -> _Result:
    """The result of ``work``, run in a thread.

    A cancelled call ends only when the work has: else it might go on with a file that was closed meanwhile,
    whose descriptor already belongs to another.
    """
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((running,))
        # Fetched so that the event loop does not report a failure that nobody looked at.
        running.exception()
        raise
