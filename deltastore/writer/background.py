"""A version on its way in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

from deltastore.writer.published import Published

__all__ = ["Publishing"]


class Publishing:
    """A version on its way in the background. Await it for what became of it, or leave it to the writer.

    An error that nobody awaited is raised by the writer's next call, or by its ``close``.
    """

    def __init__(self, task: asyncio.Task[Published]) -> None:
        self._task = task
        self._seen = False

    @property
    def done(self) -> bool:
        """Whether the version is committed, or has failed."""
        return self._task.done()

    def __await__(self) -> Generator[Any, None, Published]:
        return self._result().__await__()

    async def _result(self) -> Published:
        self._seen = True  # the caller hears of it, and nobody else has to
        try:
            await self.ended()
        except asyncio.CancelledError:
            self._seen = False
            raise
        return self._task.result()

    async def ended(self) -> None:
        """Wait until it is done, which a cancelled caller does not stop."""
        await asyncio.wait({self._task})

    def check(self) -> None:
        """Raise its error if it has failed and nobody has heard of that."""
        if self._task.done() and not self._seen:
            self._seen = True
            self._task.result()

    async def ended_or(self, event: asyncio.Event) -> None:
        """Wait until it is done or ``event`` is set, whichever comes first; a cancelled caller stops it."""
        waiting = asyncio.create_task(event.wait())
        try:
            await asyncio.wait({self._task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.stop()
            raise
        finally:
            waiting.cancel()

    async def stop(self) -> None:
        """Cancel it, and wait until it has ended; an error of its own gives way to the cancellation."""
        self._task.cancel()
        await asyncio.wait({self._task})
        self._seen = True
        if not self._task.cancelled():
            self._task.exception()
