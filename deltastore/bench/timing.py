"""Timing: the best of several runs, as the others show what else the machine did."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["best_of_both", "best_seconds"]


def best_seconds(
    work: Callable[[], object], *, repeats: int, before: Callable[[], object] | None = None
) -> float:
    """Seconds of the fastest of ``repeats`` calls of ``work``; ``before`` is called before each, untimed."""
    best = float("inf")
    for _ in range(repeats):
        if before is not None:
            before()
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best


def best_of_both(
    first: Callable[[], object], second: Callable[[], object], *, repeats: int
) -> tuple[float, float]:
    """Seconds of the fastest call of each, called in turns: what the machine does meanwhile meets both."""
    best = [float("inf"), float("inf")]
    for _ in range(repeats):
        for number, work in enumerate((first, second)):
            best[number] = min(best[number], best_seconds(work, repeats=1))
    return best[0], best[1]
