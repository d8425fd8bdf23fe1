"""What happened in a soak, in numbers, and what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Tally"]


@dataclass(slots=True)
class Tally:
    """Counts, summed over all streams of a soak. ``problems``: every promise that was broken."""

    streams: int = 0
    records: int = 0
    versions: int = 0
    published: int = 0
    compared: int = 0
    seconds: float = 0.0
    trainers: Counter[str] = field(default_factory=Counter)
    """What became of trainers: stopped, cancelled, left running, fenced."""
    publishing: Counter[str] = field(default_factory=Counter)
    """Calls of ``publish`` that failed, by error code; or that were cancelled."""
    syncing: Counter[str] = field(default_factory=Counter)
    """Calls of ``sync`` that failed, likewise."""
    faults: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """The report, for people."""
        yield f"{self.streams} streams, {self.records} records, {self.versions} versions"
        yield f"seconds    {self.seconds:.0f}"
        yield f"published  {self.published} times knowingly{_listed(self.publishing, '; without success: ')}"
        yield f"trainers   {_listed(self.trainers)}"
        yield f"syncs      {self.compared} compared, bit by bit{_listed(self.syncing, '; without success: ')}"
        yield f"faults     {self.faults.total()}{_listed(self.faults, ': ')}"
        yield f"requests   {self.requests.total()}{_listed(self.requests, ': ')}"
        for problem in self.problems:
            yield f"PROBLEM    {problem}"


def _listed(counts: Counter[str], before: str = "") -> str:
    text = ", ".join(f"{name} {count}" for name, count in counts.most_common())
    return before + text if text else ""
