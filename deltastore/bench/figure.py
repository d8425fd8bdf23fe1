"""One figure of a benchmark, beside what it is measured against in the same run."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Figure", "is_reached"]


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
        return is_reached(self.value if self.ratio is None else self.ratio, self.target, self.at_most)


def is_reached(found: float, target: float | None, at_most: bool) -> bool | None:
    """Whether ``found`` reaches the target or, where ``at_most``, does not exceed it; None without one."""
    if target is None:
        return None
    return found <= target if at_most else found >= target
