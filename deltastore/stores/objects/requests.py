"""Requests of one event loop: how many may be in flight, and that obstore is done with all when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, TypeAlias, TypeVar

from deltastore.errors import StoreError

__all__ = ["Answer", "Requests", "requests"]

_Result = TypeVar("_Result")

#: Gives what a request of obstore gives.
Answer: TypeAlias = Callable[[Awaitable[Any]], Awaitable[Any]]

_ENDING_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.001

_used_in: set[int] = set()
"""The processes that obstore was used in, up to this one: its threads are not forked."""


class Requests:
    """The gate that bounds the requests in flight, and the requests that obstore is not done with.

    obstore's threads enter the interpreter to hand over what they have, also for a request that was
    cancelled, and an interpreter that ends meanwhile kills such a thread, which aborts the process (SIGABRT).
    They hold the future of the request until they leave, so nobody else may: then its end tells theirs.
    """

    def __init__(self, concurrency: int) -> None:
        self.gate = asyncio.Semaphore(concurrency)
        self._held: weakref.WeakSet[Awaitable[Any]] = weakref.WeakSet()

    async def answer(self, request: Awaitable[_Result]) -> _Result:
        """What this request of obstore gives."""
        self._held.add(request)
        try:
            return await request
        finally:
            del request  # tracebacks keep frames, and frames what they name

    async def ended(self) -> None:
        """Wait until obstore is done with every request, for 5 seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ENDING_SECONDS):
                while self._held:
                    _settle()
                    await asyncio.sleep(_LOOK_SECONDS)


def _settle() -> None:
    """Have obstore drop what its threads let go of while they were outside the interpreter."""
    from obstore.store import MemoryStore

    # Any call into it does that.
    MemoryStore()


async def requests(concurrency: int) -> AsyncGenerator[Requests, None]:
    """Yield the requests of the running loop. It is a generator because event loops end theirs.

    Raises ``StoreError("store_failed")`` in a process that was forked from one in which obstore was used.
    """
    if _used_in - {os.getpid()}:
        message = (
            "obstore was used before this process was forked, and its threads are not here; "
            "start the process afresh (spawn), or use an s3:// URL"
        )
        raise StoreError("store_failed", message)
    _used_in.add(os.getpid())
    found = Requests(concurrency)
    try:
        yield found
    finally:
        await found.ended()
