"""One run of four writers, one of which is killed, and the trainer that comes after it."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self, get_args

from tests.distributed.together import WRITERS

from .aftermath import Aftermath, Start
from .mortal import Death
from .processes import Child
from .writers_process import LAST_VERSION, Job, Outcome, work

__all__ = ["Case", "KilledRun"]

_STARTS: tuple[Start, ...] = get_args(Start)
_RUN = "a-run"


@dataclass(frozen=True)
class Case:
    """Who dies when, and how the next trainer comes.

    ``at_once``: while survivors still wait for the dead. ``start``: with which weights. ``writers``: as how
    many processes.
    """

    rank: int
    death: Death
    at_once: bool
    start: Start
    writers: int

    @classmethod
    def drawn(cls, rank: int, death: Death) -> Self:
        """What comes after is drawn, and always the same for the same death."""
        chance = random.Random(f"{rank} {death.when} {death.number}")
        at_once, start = chance.choice((False, True)), chance.choice(_STARTS)
        return cls(rank, death, at_once, start, chance.choice((1, 1, WRITERS)))


class KilledRun:
    """The processes of a run in the stream at ``url``, which is at version 0."""

    def __init__(self, case: Case, url: str, patience: float, environment: Mapping[str, str]) -> None:
        self._case = case
        self._writers = [
            Child(
                work,
                Job(url, rank, _RUN, patience, case.death if rank == case.rank else None, environment),
            )
            for rank in range(WRITERS)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._writers:
            writer.close()

    async def victim(self) -> Outcome | None:
        """What the victim says, or None when it is dead."""
        outcome: Outcome | None = await self._writers[self._case.rank].received()
        if outcome is None:
            assert await self._writers[self._case.rank].ended() == -signal.SIGKILL
        return outcome

    async def aftermath(self, after: Aftermath, known: Outcome | None) -> tuple[int, list[Outcome]]:
        """The next trainer comes, the survivors end. How far the first had come, and how survivors ended."""
        case = self._case
        if case.at_once:
            reached = await after.take_over(case.start, case.writers, "another-run")
            ends = await self._survivors()
            if not await after.has_taken_over():
                await after.take_over(case.start, case.writers, "a-third-run")
        else:
            ends = await self._survivors()
            reached = await after.take_over(case.start, case.writers, _RUN)
        told = {version for end in [*ends, *([known] if known else [])] for version in end.published}
        for end in ends:
            self._check(end)
        await self._ask_again(ends)
        await after.check(told)
        return reached, ends

    async def _survivors(self) -> list[Outcome]:
        """All ends but the victim's; each comes in time."""
        ends = await asyncio.gather(
            *(writer.received() for rank, writer in enumerate(self._writers) if rank != self._case.rank)
        )
        assert all(isinstance(end, Outcome) for end in ends)
        return list(ends)

    def _check(self, end: Outcome) -> None:
        """A survivor has done all its work, or says why not."""
        if end.code is None:
            assert end.published == list(range(1, LAST_VERSION + 1))
        elif end.code == "fenced":
            assert "the second trainer" in end.message
        else:
            assert end.code in ("aborted", "undecided")
            assert end.message

    async def _ask_again(self, ends: list[Outcome]) -> None:
        """Survivors that publish once more are told who has taken over."""
        survivors = [writer for rank, writer in enumerate(self._writers) if rank != self._case.rank]
        for writer, end in zip(survivors, ends, strict=True):
            if end.opened:
                writer.send(True)
                again: Outcome = await writer.received()
                assert again.code == "fenced"
                assert "the second trainer" in again.message
            assert await writer.ended() == 0
