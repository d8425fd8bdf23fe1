"""Rounds of detection by certificate: what was found, and whether it came to stand published."""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np

from deltastore.detect.certified import Certified
from deltastore.detect.findings import Findings
from deltastore.detect.laid import Room
from deltastore.detect.standing import Standing
from deltastore.detect.steady import SteadyWeights
from deltastore.errors import InputError
from deltastore.kernels.rows import EncodedPatches
from deltastore.layout.live_parts import LiveParts
from deltastore.layout.weights import Weights

__all__ = ["Round", "Rounds"]

Result = TypeVar("Result")

_LOG: Final = logging.getLogger("deltastore.detect")


@dataclass(slots=True)
class Round:
    """What was found and is not committed yet. ``at_now``: nothing is known to have changed since."""

    standing: Standing
    findings: Findings = field(default_factory=Findings)
    at_now: bool = True


class Rounds(Certified, ABC):
    """A detector with a certificate; ``finder`` is what kinds of it differ in.

    For a new one, the live weights as they are count as published.
    """

    holds_copy = False

    def __init__(self, live: LiveParts, threads: int) -> None:
        super().__init__(live, threads)
        self.lock = threading.RLock()
        """Optimizer hooks run in the trainer's thread, commits in that of the event loop."""
        self.published = Standing(self.digests_now(), len(self.batches))
        self.round: Round | None = None
        self.reading = False

    @property
    def findings(self) -> Findings:
        """What the round that is open found."""
        return Findings() if self.round is None else self.round.findings

    @contextmanager
    def looking(self) -> Iterator[Round]:
        """A round while it is looked for: it is open once this ends without an error."""
        found = Round(Standing(np.zeros(self.block_count, np.uint64), len(self.batches)))
        try:
            with self.lock:
                self.round, self.reading = None, True
            yield found
        except BaseException:
            self.reading = False
            raise
        with self.lock:
            self.round, self.reading = found, False
        _tell(found.findings)

    async def retake(self) -> None:
        """Open a round of which the live weights as they are now are the outcome: they are stored whole."""
        found = Round(Standing(self.digests_now(), len(self.batches)))
        with self.lock:
            self.ended(found)
            self.round = found

    @property
    def whole(self) -> Weights:
        """The live weights, held to the certificate of ``retake`` chunk by chunk as they are read."""
        return SteadyWeights(self.live, self.batches, self._open().standing.digests)

    async def everything(self) -> AsyncGenerator[EncodedPatches]:
        """What ``retake`` found, as patches on zero bits; InputError when the weights have moved since."""
        certificate = self._open().standing.digests

        def work(number: int, room: Room) -> EncodedPatches:
            return self.from_nothing(number, certificate, room)

        async with aclosing(self._in_turn(work)) as batches:
            async for patches in batches:
                if len(patches.rows):
                    yield patches
                del patches  # else it would be there beside the next one

    async def changes(self) -> AsyncGenerator[EncodedPatches]:
        """Everything that changed since the last committed round, in pack order."""
        with self.looking() as found:
            async with aclosing(self._in_turn(self.finder(found))) as batches:
                async for patches, findings in batches:
                    found.findings.add(findings)
                    if len(patches.rows):
                        yield patches
                    del patches  # else it would be there beside the next one
            self.ended(found)

    @abstractmethod
    def finder(self, found: Round) -> Callable[[int, Room], tuple[EncodedPatches, Findings]]:
        """What finds the changes of one batch, and puts the batch's digests into ``found``."""

    def ended(self, found: Round) -> None:
        """A round was looked for to its end, and opens; for kinds that remember more."""

    async def _in_turn(self, work: Callable[[int, Room], Result]) -> AsyncGenerator[Result]:
        """The results of ``work`` for every batch, in order; the event loop goes on meanwhile."""
        with closing(self.each_batch(work)) as outcomes:
            for outcome in outcomes:
                yield outcome.result() if outcome.done() else await asyncio.wrap_future(outcome)

    def _open(self) -> Round:
        if self.round is None:
            raise ValueError("no round is open")
        return self.round

    async def digest(self) -> int:
        """The digest of what the open round found, or else of what stands published, mod 2**64."""
        return (self.published if self.round is None else self.round.standing).digest

    async def unchanged(self) -> bool:
        """Whether the live weights are those that stand published."""
        return self.is_now(self.published.digests)

    def committed(self) -> None:
        """What the open round found is what stands published."""
        with self.lock:
            found, self.round = self.round, None
            if found is not None:
                self.published = found.standing
                self.settled(found)

    def settled(self, found: Round) -> None:
        """A round was committed; for kinds that remember more."""

    def aborted(self) -> None:
        """What the open round found stays to be found again."""
        with self.lock:
            self.round = None

    def close(self) -> None:
        """Nothing to give up."""

    def refuse_while_reading(self, what: str) -> None:
        """InputError while a round is looked for; ``what`` would disturb it."""
        if self.reading:
            raise InputError(
                "bad_argument", f"{what} while the weights are being published: wait for that first"
            )


def _tell(findings: Findings) -> None:
    level = logging.WARNING if findings.suspicious else logging.INFO
    unknown = findings.suspicious and not findings.reasons
    hint = "; a hyper-parameter is probably wrong, or something else wrote to the weights"
    _LOG.log(level, "%s%s", findings, hint if unknown else "")
