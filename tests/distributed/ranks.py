"""Trainer processes that are started together, and what their rank 0 left of every version."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.doubles.models import Bits

__all__ = ["run_ranks", "running_ranks", "truth_of"]

# A fork is not for processes that have loaded torch, and tensorstore survives none.
SPAWNING = multiprocessing.get_context("spawn")
HANG_SECONDS = 120.0


@contextmanager
def running_ranks(train: Callable[..., None], world: int, *arguments: Any) -> Iterator[Callable[[], None]]:
    """``train(rank, *arguments)`` in ``world`` processes, which are gone at the end.

    What is yielded waits for them, and asserts that all of them ended well.
    """
    ranks = [SPAWNING.Process(target=train, args=(rank, *arguments), daemon=True) for rank in range(world)]
    for rank in ranks:
        rank.start()

    def wait() -> None:
        for rank in ranks:
            rank.join(HANG_SECONDS)
        assert [rank.exitcode for rank in ranks] == [0] * world

    try:
        yield wait
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()
            rank.close()


def run_ranks(train: Callable[..., None], world: int, *arguments: Any) -> None:
    """``train(rank, *arguments)`` in ``world`` processes; all of them end well."""
    with running_ranks(train, world, *arguments) as wait:
        wait()


def truth_of(folder: Path, version: int) -> Bits:
    """The bits of a version by name, as the trainer gathered them."""
    with np.load(folder / f"{version}.npz") as gathered:
        return {name: bits.view("<u2") for name, bits in gathered.items()}
