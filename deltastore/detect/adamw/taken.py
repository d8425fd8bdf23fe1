"""What the last step did to a parameter, from what was captured before and after it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from deltastore.detect.adamw.capture import Capture, Counted
from deltastore.detect.adamw.hyper import Hyper, problem_of
from deltastore.detect.adamw.masters import state_of, why_no_moments

__all__ = ["NOTHING", "Step", "Taken", "taken_in"]

_STILL: Final = "its step counter did not move"
_LIMIT: Final = float(1 << 24)
"""An FP32 counter ends here: one more is rounded away."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What the last step did to a held box.

    ``hyper``: what it was moved with, where that step can be inverted; else ``reason`` says why it cannot, or
    why nothing happened. ``moved``: whether the step may have changed it.
    """

    hyper: Hyper | None
    reason: str
    moved: bool


NOTHING: Final = Taken(None, "", False)


@dataclass(slots=True, eq=False)
class Step:
    """A step that began, and ended where ``after`` is set. ``now``: when it was first asked about."""

    before: Capture
    after: Capture | None = None
    now: Capture | None = None

    def ask(self, optimizer: Any) -> Capture:
        """The counters at the time of the first question: a state that was loaded meanwhile has others."""
        if self.now is None:
            self.now = Capture(optimizer)
        return self.now


def taken_in(step: Step, optimizer: Any, group: int, param: Any) -> Taken:
    """What ``step`` did to ``param`` of ``group``."""
    now = step.ask(optimizer)
    after = step.after or now
    if not (step.before.knows(param) and after.knows(param) and now.knows(param)):
        return Taken(None, "it was in no group before or after the step", True)
    counts = _counts(step.before, after, param)
    if counts is None:
        stepped = bool(state_of(optimizer, param))
        return Taken(None, "its optimizer counts no steps" if stepped else _STILL, stepped)
    still = _why_still(counts, step.before.has_gradient(param) or after.has_gradient(param))
    if still is not None:
        return still
    reason = _why_jumped(counts)
    if not reason and now.counted(param) != after.counted(param):
        reason = "its step counter was changed after the step"
    reason = reason or why_no_moments(optimizer, optimizer.param_groups[group], param)
    if reason:
        return Taken(None, reason, True)
    hyper = step.before.hyper(param, round(counts[1].count))
    problem = problem_of(hyper)
    return Taken(None, problem, True) if problem else Taken(hyper, "", True)


def _counts(before: Capture, after: Capture, param: Any) -> tuple[Counted, Counted] | None:
    """The counter before and after, of the same kind: 0 before it was there."""
    last = after.counted(param)
    if last is None:
        return None
    first = before.counted(param)
    return (first if first and first.own == last.own else Counted(0.0, last.own)), last


def _why_still(counts: tuple[Counted, Counted], gradient: bool) -> Taken | None:
    """That the step did not touch the parameter, if so."""
    first, last = counts
    if not last.own and not gradient:
        return Taken(None, "it has no gradient", False)
    if first.count != last.count:
        return None
    if last.count >= _LIMIT:
        return Taken(None, f"its step counter has reached its limit, {last.count:.0f}", True)
    return Taken(None, _STILL, False)


def _why_jumped(counts: tuple[Counted, Counted]) -> str:
    first, last = counts
    if not math.isfinite(last.count) or last.count != math.floor(last.count) or last.count < 1:
        return f"its step counter is {last.count:g}"
    by = last.count - first.count
    return "" if by == 1 else f"its step counter moved by {by:g}"
