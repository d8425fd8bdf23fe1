"""Thousands of mutants of sound streams, and what becomes of each.

    python -m tests.attacks.mutants --seed 1 --count 5000

prints a table: kinds of mutants by the level that reports them, or by why they do no harm; and fails with a
description of each one that is neither. ``--only N`` judges one of them again.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from deltastore.validate import Level

from .damage import Make, Mutant, damage_of
from .forgery import forgery_of
from .oracle import Oracle, Verdict
from .samples import samples

HARMLESS = (
    "the same bytes",
    "no record names it",
    "the log ends earlier",
    "the same weights",
    "another sound history",
)
COLUMNS = (*(level.name.lower() for level in Level), *HARMLESS)


@dataclass
class Tally:
    """How many of each kind ended how, and what is wrong."""

    total: int = 0
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    checks: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def take(self, number: int, mutant: Mutant, verdict: Verdict) -> None:
        """Count one."""
        self.total += 1
        kind = self.counts.setdefault(mutant.kind, Counter())
        if verdict.level is not None and verdict.check is not None:
            kind[verdict.level.name.lower()] += 1
            self.checks[verdict.check] += 1
        elif verdict.harmless is not None:
            kind[verdict.harmless] += 1
        if verdict.unproved is not None:
            self.wrong.append(
                f"{number}: {mutant.kind}, {mutant.what} of {mutant.sample.name}: {verdict.unproved}"
            )

    def lines(self) -> Iterator[str]:
        """The table."""
        width = max(map(len, self.counts), default=0)
        yield f"{'':{width}}" + "".join(f" {name:>{len(name)}}" for name in COLUMNS)
        sums: Counter[str] = Counter()
        for kind, found in sorted(self.counts.items()):
            sums += found
            yield f"{kind:{width}}" + "".join(f" {found[name] or '':>{len(name)}}" for name in COLUMNS)
        yield f"{'in all':{width}}" + "".join(f" {sums[name]:>{len(name)}}" for name in COLUMNS)
        seen = ", ".join(f"{check} {times}" for check, times in sorted(self.checks.items()))
        yield f"{self.total} mutants; first requirement broken: {seen}"
        for one in self.wrong:
            yield f"WRONG {one}"


@contextmanager
def in_one_thread() -> Iterator[None]:
    """Hashing in place: a thread for some hundred bytes takes longer than the hash."""

    async def at_once(work: Any, *given: Any, **named: Any) -> Any:
        return work(*given, **named)

    with patch("asyncio.to_thread", at_once):
        yield


def mutant(seed: int, number: int, makes: list[Make]) -> Mutant | None:
    """Mutant ``number`` of a seed: kinds take turns."""
    return makes[number % len(makes)](np.random.default_rng((seed, number)))


async def judged(
    seed: int, numbers: Iterator[int], folder: Path
) -> AsyncIterator[tuple[int, Mutant, Verdict]]:
    """The mutants of these numbers and what became of them; some draws give none."""
    grown = await samples()
    forgeries = list(forgery_of(grown).values())
    makes = [*damage_of(grown).values(), *forgeries, *forgeries]
    oracle = Oracle(folder)
    with in_one_thread():
        for number in numbers:
            made = mutant(seed, number, makes)
            if made is not None:
                yield number, made, await oracle.judge(made)


async def tally_of(seed: int, count: int, *, only: int | None = None) -> Tally:
    """Judge ``count`` mutants, evenly over the kinds."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        numbers = itertools.count() if only is None else iter([only])
        async for number, made, verdict in judged(seed, numbers, Path(folder) / "stream"):
            tally.take(number, made, verdict)
            if tally.total >= count:
                break
    return tally


def main(arguments: list[str]) -> int:
    """Print the table; the status is 1 where a mutant is neither reported nor proved harmless."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--only", type=int, help="the number of one mutant of the seed")
    given = parser.parse_args(arguments)
    tally = asyncio.run(tally_of(given.seed, given.count, only=given.only))
    for line in tally.lines():
        print(line)
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
