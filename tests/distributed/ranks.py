"""Trainer processes that train together, and what their rank 0 left of every version."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from tests.doubles.models import Bits

from .sharding import PROCESSES

__all__ = ["Ranks", "truth_of"]

# A fork is not for processes that have loaded torch, and tensorstore survives none.
SPAWNING = multiprocessing.get_context("spawn")
HANG_SECONDS = 120.0


class Ranks:
    """Processes for one training after another: loading torch costs more than a training does."""

    def __init__(self) -> None:
        self._ranks: list[_Rank] = []

    @contextmanager
    def running(
        self, train: Callable[..., None], world: int, *arguments: Any
    ) -> Iterator[Callable[[], None]]:
        """``train(rank, *arguments)`` in ``world`` processes, which no longer do at the end.

        What is yielded waits for them, and asserts that all of them ended well. Others train next if not.
        """
        self._ranks = self._ranks or [_Rank(number) for number in range(PROCESSES)]
        chosen, ends = self._ranks[:world], [False]
        for rank in chosen:
            rank.link.send((train, arguments))

        def wait() -> None:
            ends[:] = [rank.ended_well() for rank in chosen]
            assert all(ends), ends

        try:
            yield wait
        finally:
            if not all(ends):
                self.close()

    def run(self, train: Callable[..., None], world: int, *arguments: Any) -> None:
        """``train(rank, *arguments)`` in ``world`` processes; all of them end well."""
        with self.running(train, world, *arguments) as wait:
            wait()

    def close(self) -> None:
        """End all processes."""
        for rank in self._ranks:
            rank.close()
        self._ranks = []


class _Rank:
    """A process, and the way to it."""

    def __init__(self, number: int) -> None:
        self.link, there = SPAWNING.Pipe()
        self._process = SPAWNING.Process(target=_obey, args=(number, there), daemon=True)
        self._process.start()
        there.close()

    def ended_well(self) -> bool:
        """Wait for the end of a training; whether it came, and without an error."""
        try:
            return self.link.poll(HANG_SECONDS) and bool(self.link.recv())
        except EOFError:
            return False

    def close(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self.link.close()


def _obey(rank: int, parent: Connection) -> None:
    """An error in a training is the end of the process."""
    while True:
        train, arguments = parent.recv()
        train(rank, *arguments)
        parent.send(True)


def truth_of(folder: Path, version: int) -> Bits:
    """The bits of a version by name, as the trainer gathered them."""
    with np.load(folder / f"{version}.npz") as gathered:
        return {name: bits.view("<u2") for name, bits in gathered.items()}
