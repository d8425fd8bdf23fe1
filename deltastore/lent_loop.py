"""An event loop that a sync face lends to what it makes: one piece of work, and one thread, at a time."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from deltastore.errors import InputError

__all__ = ["LentLoop"]

Result = TypeVar("Result")

_ENDING_SECONDS: Final = 10.0
"""How long an interrupted call waits for its work to end."""

_ENDING_ROUNDS: Final = 8


class LentLoop:
    """Runs coroutines to their end, one at a time, for one thread at a time.

    They run in the caller's thread until one asks that the loop be ``moved`` into a thread of its own, in
    which tasks go on between calls too.
    """

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._in_use = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self.closed = False

    def run(self, work: Coroutine[Any, Any, Result], *, moved: bool = False, last: bool = False) -> Result:
        """``moved``: from now on the loop runs in a thread, until ``close``. ``last``: it is closed then.

        A call that is refused has done nothing.
        """
        if self.closed:
            work.close()
            raise InputError("bad_argument", "the stream is closed: open it again")
        if _inside_a_loop():
            work.close()
            raise InputError(
                "bad_argument", "an event loop is running here: use deltastore.AsyncStream, and await it"
            )
        if os.getpid() != self._process:
            work.close()
            raise InputError("bad_argument", "the stream was opened before a fork: open it in this process")
        # Else the loop would take the work on, raise here, and do it all the same later.
        if not self._in_use.acquire(blocking=False):
            work.close()
            raise InputError(
                "bad_argument", "another thread is using this stream: open a stream for each thread"
            )
        try:
            if moved and self._thread is None:
                self._move()
            return self._run_here(work) if self._thread is None else self._run_there(work)
        finally:
            if last:
                self.close()
            self._in_use.release()

    def _run_here(self, work: Coroutine[Any, Any, Result]) -> Result:
        before = asyncio.all_tasks(self._runner.get_loop())
        try:
            return self._runner.run(work)
        except BaseException:
            self._end_all_but(before)
            raise

    def _end_all_but(self, others: set[asyncio.Task[Any]]) -> None:
        """End what an interrupt has left that struck the loop itself, or a task that the work waited for.

        Else it would go on in the next call, or raise the interrupt there once more.
        """
        loop = self._runner.get_loop()
        for _ in range(_ENDING_ROUNDS):
            left = asyncio.all_tasks(loop) - others
            if not left:
                return
            for task in left:
                task.cancel()
            with suppress(KeyboardInterrupt, SystemExit):  # that of a task, which has been raised already
                loop.run_until_complete(asyncio.wait(left, timeout=_ENDING_SECONDS))

    def _run_there(self, work: Coroutine[Any, Any, Result]) -> Result:
        loop, ended = self._runner.get_loop(), threading.Event()
        tasks: list[asyncio.Task[Any] | None] = []

        async def watched() -> Result:
            tasks.append(asyncio.current_task())
            try:
                return await work
            finally:
                tasks.clear()
                ended.set()

        def stop() -> None:
            for task in tasks:
                if task is not None:
                    task.cancel()

        try:
            return asyncio.run_coroutine_threadsafe(watched(), loop).result()
        except BaseException:
            # An interrupt ends the work as it would in this thread, wherever it struck, and leaves nothing
            # running. What the work itself raised finds nothing to stop.
            loop.call_soon_threadsafe(stop)
            ended.wait(_ENDING_SECONDS)
            raise

    def _move(self) -> None:
        loop = self._runner.get_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="deltastore uploads", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.closed = True
        if self._thread is not None:
            self._runner.get_loop().call_soon_threadsafe(self._runner.get_loop().stop)
            self._thread.join()
        self._runner.close()


def _inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
