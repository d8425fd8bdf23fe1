"""The coefficients of an inversion, chosen so that its interval holds the old weight.

INVERSION.md derives every number here. All are relative errors in units of one FP32 rounding, 2^-24, except
for what underflow adds.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from deltastore.detect.adamw.hyper import UNIT, Hyper, corrections_of, decay_error, growth_of
from deltastore.kernels.inversion import RULE

__all__ = ["covers_tiny_squares", "rule_of"]

KERNEL: Final = 7.0
"""Roundings of the update as the kernel computes it."""

DOUBLE: Final = 8.0
"""Roundings of the update in torch's orders with coefficients in double."""

SINGLE: Final = 17.5
"""The same in orders with coefficients in FP32; most in Apex's, built with --use_fast_math."""

SAFETY: Final = 1.0 + 2.0**-10
"""For products of errors, for rounding the coefficients to FP32, and for the kernel's own reach."""

SMALLEST: Final = 2.0**-126
"""The smallest normal FP32 number: what flushing to zero loses, at most."""

LEAST_ROOT: Final = 2.0**-75
"""Less than the square root of any FP32 number but 0."""

WIDEST: Final = 2.0**-8
"""Squares below the smallest normal number may widen the interval by this part of the update."""


def rule_of(hyper: Hyper) -> np.void:
    """The row of dtype ``RULE`` for a step that ``problem_of`` finds nothing wrong with."""
    found = corrections_of(hyper)
    step_size = hyper.lr / found.first
    growth = float(growth_of(hyper))
    apart = decay_error(hyper)
    apart /= 1.0 - apart
    update = _update_error(hyper, found.first_error, found.second_error)
    rounded = UNIT if growth == 1.0 else 2 * UNIT
    of_value = growth * (apart + UNIT + rounded) * SAFETY if hyper.lr else 0.0
    of_update = growth * (update + apart * (1.0 + update) + rounded) * SAFETY
    floor = 16 * SMALLEST * growth * (1.0 + step_size) * (1.0 + 1.0 / max(hyper.eps, LEAST_ROOT))
    row = np.zeros((), RULE)
    row["step_size"] = step_size
    row["root_scale"] = 1.0 / math.sqrt(found.second)
    row["eps"] = hyper.eps
    row["growth"] = growth
    for name, value in (("of_value", of_value), ("of_update", of_update), ("floor", floor)):
        row[name] = _at_least(value)
    taken: Any = row[()]
    return taken  # type: ignore[no-any-return]


def covers_tiny_squares(hyper: Hyper) -> bool:
    """Whether the interval holds too where a square below 2^-126 was flushed to zero, or lost digits."""
    return 0.0 < _tiny_squares(hyper) <= WIDEST


def _update_error(hyper: Hyper, first_error: float, second_error: float) -> float:
    """How far the optimizer's update may be from the kernel's, in parts of the latter."""
    forward = 1.0 + (SINGLE if hyper.single else DOUBLE) * UNIT
    forward *= 1.0 + first_error / (1.0 - first_error)
    forward *= 1.0 + second_error / (1.0 - second_error) / 2
    if covers_tiny_squares(hyper):
        forward *= 1.0 + _tiny_squares(hyper)
    return forward * (1.0 + KERNEL * UNIT) - 1.0


def _tiny_squares(hyper: Hyper) -> float:
    """The root of a square below 2^-126, in parts of eps."""
    if not hyper.eps:
        return math.inf
    return math.sqrt(SMALLEST / corrections_of(hyper).second) / hyper.eps


def _at_least(value: float) -> np.float32:
    """The FP32 number at ``value`` or next above it."""
    near = np.float32(value)
    return near if float(near) >= value else np.nextafter(near, np.float32(np.inf))
