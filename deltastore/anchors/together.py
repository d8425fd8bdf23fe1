"""Tasks that end together: structured concurrency whose failure is the error itself, not a group of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["together"]


@asynccontextmanager
async def together() -> AsyncIterator[asyncio.TaskGroup]:
    """A task group: on exit every task has ended. The first failure cancels the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
