"""kill -9 of one of four writers at every call of its store; the others end, and another trainer takes over.

The next trainer comes at once, while survivors still wait, or after they have ended. It has the weights of
the newest version, of an older one, or unknown ones. It is one process or four. No operator does anything.

A folder gets every case, SeaweedFS some of them. For all of them, which takes about twenty minutes:

    CRASH_POINTS=all python -m pytest --timeout 3600 tests/crash/test_writers_killed.py
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deltastore.stores import open_store
from deltastore.stream import AsyncStream
from tests.doubles.stores import contents, memory_store
from tests.servers.server import Server

from .aftermath import Aftermath
from .dying_publisher import model_of
from .killed_run import Case, KilledRun
from .mortal import Death, When


@dataclass
class Matrix:
    """Every case of a victim, in streams of their own; or one in ``every``.

    ``patience``: in seconds, of survivors. ``at_once``: how many cases run at the same time. ``reached``: the
    version that the first trainer had committed. ``codes``: how survivors ended.
    """

    rank: int
    when: When
    place: Callable[[str], str]
    patience: float
    at_once: int
    every: int = 1
    reached: Counter[int] = field(default_factory=Counter)
    codes: Counter[str | None] = field(default_factory=Counter)
    lived: int | None = None

    async def run(self) -> None:
        """Until a victim lives."""
        self._objects = await contents((await AsyncStream.create(memory_store(), model_of(0))).store)
        numbers = itertools.count(self.every, self.every)
        async with asyncio.TaskGroup() as group:
            for _ in range(self.at_once):
                group.create_task(self._some(numbers))

    async def _some(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            if not await self._comes_about(Case.drawn(self.rank, Death(self.when, number))):
                return

    async def _comes_about(self, case: Case) -> bool:
        """Whether the victim died. When it neither did nor could do its work, the machine was too slow."""
        for attempt in range(6):
            url = self.place(f"{self.when}-{self.rank}-{case.death.number}-{attempt}")
            async with open_store(url) as store:
                for key, data in self._objects.items():
                    await store.put(key, data)
                after = await Aftermath.begin(store)
                with KilledRun(case, url, self.patience * 2**attempt, dict(os.environ)) as run:
                    end = await run.victim()
                    if self.lived is not None and self.lived < case.death.number:
                        return False
                    if end is None or end.code is None:
                        self.lived = None if end is None else case.death.number
                        reached, ends = await run.aftermath(after, end)
                        self.reached[reached] += 1
                        self.codes.update(end.code for end in ends)
                        return end is None
        raise AssertionError(f"{case} never came about")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.spec("DS002", "DS005", "DS080", "DS083", "DS087", "DS088")
async def test_at_every_call_on_a_folder(tmp_path: Path, rank: int, when: When) -> None:
    matrix = Matrix(rank, when, lambda name: (tmp_path / name).as_uri(), patience=0.6, at_once=6)
    await matrix.run()
    assert matrix.reached.total() > 20
    assert matrix.reached.keys() == {0, 1, 2}
    assert matrix.codes.keys() >= {"aborted", None}
    assert rank != 0 or "undecided" in matrix.codes


@pytest.mark.parametrize(
    ("rank", "when", "every"), [(0, "during", 9), (2, "during", 3), (0, "after", 40), (2, "after", 24)]
)
@pytest.mark.spec("DS002", "DS005", "DS080", "DS083", "DS087", "DS088")
async def test_on_seaweed(weed: Server, rank: int, when: When, every: int) -> None:
    bucket = weed.bucket("killed")
    step = 1 if os.environ.get("CRASH_POINTS") == "all" else every
    matrix = Matrix(rank, when, lambda name: weed.url(bucket, name), patience=1.5, at_once=3, every=step)
    await matrix.run()
    assert len(matrix.reached) > 1
