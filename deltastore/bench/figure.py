"""One figure of a benchmark, beside what it is measured against in the same run."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Figure"]


@dataclass(frozen=True, slots=True)
class Figure:
    """``value`` is in ``unit``; ``ratio`` is to ``beside``, measured in the same run.

    ``target`` is what the ratio (or, without one, the value) should reach or, where ``at_most``, not exceed.
    """

    name: str
    value: float
    unit: str
    ratio: float | None = None
    beside: str = ""
    target: float | None = None
    at_most: bool = False

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None where there is none."""
        if self.target is None:
            return None
        found = self.value if self.ratio is None else self.ratio
        return found <= self.target if self.at_most else found >= self.target
