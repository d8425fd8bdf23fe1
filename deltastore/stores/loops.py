"""A value for each event loop that asks for one, made by an async generator that ends with the loop."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar

__all__ = ["PerLoop"]

_Value = TypeVar("_Value")


class _Slot(Generic[_Value]):
    """The generator of one loop, and what it yielded."""

    def __init__(self) -> None:
        self.making = asyncio.Lock()
        self.source: AsyncGenerator[_Value, None] | None = None
        self.value: _Value | None = None

    async def filled(self, make: Callable[[], AsyncGenerator[_Value, None]]) -> _Value:
        async with self.making:
            if self.value is None:
                self.source = make()
                self.value = await anext(self.source)
            return self.value

    async def close(self) -> None:
        source, self.source, self.value = self.source, None, None
        if source is not None:
            await source.aclose()


class PerLoop(Generic[_Value]):
    """Values by event loop. A loop that ends closes its own; what one forgets, the next user sweeps out.

    A forked process begins without any: it shares the sockets of its parent's, which it must not close.
    """

    def __init__(self, make: Callable[[], AsyncGenerator[_Value, None]]) -> None:
        self._make = make
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._slots: dict[asyncio.AbstractEventLoop, _Slot[_Value]] = {}
        self._lock = threading.Lock()

    def _leave_parent(self) -> None:
        """Forget, in a forked process, what belongs to its parent, which holds the lock perhaps."""
        if self._process != os.getpid():
            # Collected objects close themselves, and take the parent's sockets out of the epoll that both
            # processes share. So these are never collected, not even at the end of the process.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._slots))
            self._begin()

    async def get(self) -> _Value:
        """The running loop's value, made now if it has none."""
        self._leave_parent()
        loop = asyncio.get_running_loop()
        slot = self._slots.get(loop)
        if slot is None:
            with self._lock:
                for ended in [other for other in self._slots if other.is_closed()]:
                    del self._slots[ended]
                slot = self._slots.setdefault(loop, _Slot())
        return slot.value if slot.value is not None else await slot.filled(self._make)

    async def close(self) -> None:
        """Close the running loop's value, and those of loops that run in other threads.

        A loop that stands still closes its own when it ends, as ``asyncio.run`` and ``asyncio.Runner`` do.
        """
        self._leave_parent()
        here = asyncio.get_running_loop()
        with self._lock:
            gone = {loop: slot for loop, slot in self._slots.items() if loop.is_running() or loop.is_closed()}
            for loop in gone:
                del self._slots[loop]
        for loop, slot in gone.items():
            if loop is here:
                await slot.close()
            elif not loop.is_closed():
                asyncio.run_coroutine_threadsafe(slot.close(), loop)
