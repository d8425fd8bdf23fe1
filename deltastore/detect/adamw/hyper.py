"""The hyper-parameters of one AdamW step, and which steps can be taken back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

__all__ = ["Corrections", "Hyper", "corrections_of", "decay_error", "growth_of", "problem_of"]

UNIT: Final = 2.0**-24
"""The largest relative error of one FP32 rounding."""

FITS: Final = 2.0**100
"""Coefficients between this and its inverse leave FP32 arithmetic room above and below."""

INEXACT: Final = 0.25
"""A bias correction with a relative error of that or more says nothing."""


@dataclass(frozen=True, slots=True)
class Hyper:
    """Hyper-parameters of one step of one parameter, as the optimizer used them.

    ``weight_decay``: decoupled; 0.0 where decay is L2, which the moments contain already. ``step``: the
    counter t after the step, from 1 on. ``single``: the bias corrections were computed in FP32, or in an
    order of arithmetic that is not torch's with coefficients in double (INVERSION.md, table of orders).
    """

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    step: int
    bias_correction: bool = True
    single: bool = False


@dataclass(frozen=True, slots=True)
class Corrections:
    """1 - beta^t of both moments in double, and by what relative error the optimizer's may differ."""

    first: float
    second: float
    first_error: float
    second_error: float


def corrections_of(hyper: Hyper) -> Corrections:
    """The bias corrections of a step whose betas are in [0, 1)."""
    if not hyper.bias_correction:
        return Corrections(1.0, 1.0, 0.0, 0.0)
    first, first_error = _correction(hyper.beta1, hyper.step, hyper.single)
    second, second_error = _correction(hyper.beta2, hyper.step, hyper.single)
    return Corrections(first, second, first_error, second_error)


def _correction(beta: float, step: int, single: bool) -> tuple[float, float]:
    power = beta**step
    correction = 1.0 - power
    if correction <= 0.0:
        return correction, math.inf
    error = 2.0**-50  # of pow and of the subtraction in double
    if single:
        rounded = float(np.float32(beta)) ** step
        error += abs(rounded - power) + (4 * step + 16) * UNIT * max(power, rounded)
    return correction, error / correction


def growth_of(hyper: Hyper) -> np.float32:
    """What the kernel multiplies by to take the decay back: 1 / (1 - lr * weight_decay), rounded."""
    return np.float32(1.0 / (1.0 - hyper.lr * hyper.weight_decay))


def decay_error(hyper: Hyper) -> float:
    """How far the product of ``growth_of`` and of the optimizer's own factor of decay is from 1, at most."""
    decay = hyper.lr * hyper.weight_decay
    growth = float(growth_of(hyper))
    exact = abs(growth * (1.0 - decay) - 1.0)
    if not hyper.single:
        if decay <= UNIT / 2:  # 1 - decay rounds to 1, and so does any weight times it
            return 0.0
        factor = float(np.float32(1.0 - decay))
        return max(exact, abs(growth * factor - 1.0)) + UNIT
    if decay * (1.0 + 8 * UNIT) <= UNIT / 2:
        return decay * (1.0 + 8 * UNIT)
    return exact + 2 * UNIT + 5 * UNIT * decay * growth


def problem_of(hyper: Hyper) -> str | None:
    """Why the step cannot be taken back, in words that name the numbers; None where it can."""
    numbers = {
        "lr": hyper.lr,
        "beta1": hyper.beta1,
        "beta2": hyper.beta2,
        "eps": hyper.eps,
        "weight_decay": hyper.weight_decay,
    }
    for name, value in numbers.items():
        if not math.isfinite(value):
            return f"{name} is {value}"
        if value < 0:
            return f"{name} is {value}, less than 0"
    for name in ("beta1", "beta2"):
        if numbers[name] >= 1:
            return f"{name} is {numbers[name]}, not less than 1"
    if not 1 <= hyper.step <= 1 << 53:
        return f"the step counter is {hyper.step}, not between 1 and 2^53"
    return _unfit(hyper) or _inexact(hyper)


def _unfit(hyper: Hyper) -> str | None:
    """Numbers that FP32 arithmetic has no room for."""
    decay = hyper.lr * hyper.weight_decay
    if decay >= 1:
        return f"lr {hyper.lr} times weight_decay {hyper.weight_decay} is {decay}, not less than 1"
    for name, value in (("lr", hyper.lr), ("eps", hyper.eps)):
        if value and not 1 / FITS <= value <= FITS:
            return f"{name} is {value}, too {'small' if value < 1 else 'large'} for FP32 arithmetic"
    return None


def _inexact(hyper: Hyper) -> str | None:
    """Numbers that the optimizer itself could not compute well enough."""
    if decay_error(hyper) >= 2.0**-6:
        return f"lr {hyper.lr} times weight_decay {hyper.weight_decay} is too near to 1 for FP32 arithmetic"
    found = corrections_of(hyper)
    for name, beta, error in (
        ("beta1", hyper.beta1, found.first_error),
        ("beta2", hyper.beta2, found.second_error),
    ):
        if error >= INEXACT:
            kind = "FP32" if hyper.single else "double"
            return f"{name} {beta} is too near to 1 for a bias correction in {kind} at step {hyper.step}"
    if hyper.lr / found.first > FITS:
        return f"lr {hyper.lr} over the bias correction {found.first} is too large for FP32 arithmetic"
    return None
