"""What a probe found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

__all__ = ["BrokenPromiseError", "Capability", "Need", "Report", "Verdict"]

Verdict: TypeAlias = Literal["ok", "fails", "unknown"]
Need: TypeAlias = Literal["commits", "reads", "upkeep", "speed"]

# A writer commits and reads; without the others it merely cannot tidy up, or is slower.
_WRITING: Final = frozenset({"commits", "reads"})


class BrokenPromiseError(Exception):
    """The store answered, and not as it must; the text says what it did."""


@dataclass(frozen=True, slots=True)
class Capability:
    """One thing that a store must or may be able to do. ``detail`` says in a few words what was seen."""

    name: str
    verdict: Verdict
    detail: str
    needed_for: Need


@dataclass(frozen=True, slots=True)
class Report:
    """What a store can do. ``poll_seconds``: the median time of asking whether a small object has changed."""

    url: str
    capabilities: tuple[Capability, ...]
    poll_seconds: float | None

    @property
    def missing(self) -> tuple[Capability, ...]:
        """What a writer needs and the store cannot do, or what could not be found out about it."""
        return tuple(
            found for found in self.capabilities if found.needed_for in _WRITING and found.verdict != "ok"
        )
