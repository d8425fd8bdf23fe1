"""What ``deltastore bench inversion`` measures with."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["InversionPlan"]


@dataclass(frozen=True, slots=True)
class InversionPlan:
    """About how many FP32 parameters, at which learning rate, published every how many steps.

    ``threads``: of the optimizer, and of detection. ``repeats``: runs of what is timed; the best counts.
    """

    parameters: int = 100_000_000
    lr: float = 1e-6
    every: tuple[int, ...] = (1, 4, 16)
    threads: int = 1
    repeats: int = 3
