"""Which call is struck by what: the same for the same plan, seed and order of calls."""

from __future__ import annotations

import random
from dataclasses import dataclass

from deltastore.stores.faults.plan import Fault, Faults, Kind, Operation

__all__ = ["Dice", "Strike"]


@dataclass(frozen=True, slots=True)
class Strike:
    """What happens to one call: at most one fault of ``kind``, and a delay in seconds if any.

    ``amount`` is from 0 to below 1: how much of something, where the kind leaves that open.
    """

    number: int
    operation: Operation
    key: str
    kind: Kind | None
    delay: float | None
    amount: float


class Dice:
    """Draws for every call. Each operation has a generator of its own.

    So whether the third ``put`` is struck does not depend on how many reads other tasks did meanwhile.
    """

    def __init__(self, plan: Faults, seed: int) -> None:
        self._plan = plan
        self._seed = seed
        self._generators: dict[Operation, random.Random] = {}
        self._matched = [0] * len(plan.faults)
        self._calls = 0

    @property
    def calls(self) -> int:
        """How many calls there were."""
        return self._calls

    def throw(self, operation: Operation, key: str) -> Strike:
        """The fate of the next call."""
        self._calls += 1
        generator = self._generators.get(operation)
        if generator is None:
            generator = self._generators[operation] = random.Random(f"{self._seed} {operation}")
        kind: Kind | None = None
        delayed = False
        for index, fault in enumerate(self._plan.faults):
            # Always as many draws a call, so that one more fault in the plan moves no other.
            drawn = generator.random()
            if not fault.matches(operation, key) or not self._turn(index, fault, drawn):
                continue
            if fault.kind == "delayed":
                delayed = True
            elif kind is None:
                kind = fault.kind
        amount = generator.random()
        delay = self._plan.delay_seconds * amount if delayed else None
        return Strike(self._calls, operation, key, kind, delay, amount)

    def _turn(self, index: int, fault: Fault, drawn: float) -> bool:
        self._matched[index] += 1
        return self._matched[index] in fault.at if fault.at else drawn < fault.probability
