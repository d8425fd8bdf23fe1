"""Time for tests of retries: a clock that only sleeping moves, and no sleep that waits."""

from __future__ import annotations

from dataclasses import dataclass, field

from deltastore.stores.retrying import Retrying


@dataclass
class FakeTime:
    """Seconds since the start, and every pause that was made."""

    now: float = 0.0
    pauses: list[float] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def retrying(self, *, deadline: float = 60.0, read: float = 30.0) -> Retrying:
        """The usual policy in this time, always waiting as long as it may."""
        return Retrying(deadline=deadline, read=read, clock=self.clock, sleep=self.sleep, chance=lambda: 1.0)
