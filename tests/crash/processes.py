"""Processes forked from a server that has everything loaded: each costs a few milliseconds."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["Child"]

_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(["tests.crash.preloaded"])

_HANG_SECONDS = 60.0


class Child:
    """A process that runs ``target(argument, connection)``, and what it sends. Killed if it hangs."""

    def __init__(self, target: Callable[[Any, Connection], None], argument: object) -> None:
        self._here, there = _FORKING.Pipe()
        self._process = _FORKING.Process(target=target, args=(argument, there), daemon=True)
        self._process.start()
        there.close()

    async def received(self) -> Any:
        """What it sends next, or None when it has ended without."""
        await _readable(self._here.fileno())
        try:
            return self._here.recv()
        except EOFError:
            return None

    def send(self, value: object) -> None:
        """Answer it."""
        self._here.send(value)

    async def ended(self) -> int | None:
        """Wait for its end; the exit code."""
        await _readable(self._process.sentinel)
        self._process.join()
        return self._process.exitcode

    def close(self) -> None:
        """Kill it if it still runs."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self._here.close()


async def _readable(file: int) -> None:
    """``TimeoutError`` when nothing comes: it hangs."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    copy = os.dup(file)  # others may wait for the same one
    loop.add_reader(copy, ready.set)
    try:
        async with asyncio.timeout(_HANG_SECONDS):
            await ready.wait()
    finally:
        loop.remove_reader(copy)
        os.close(copy)
