"""Coefficients of an inversion, and which steps have none."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from deltastore.detect.adamw.bound import covers_tiny_squares, rule_of
from deltastore.detect.adamw.hyper import Hyper, corrections_of, problem_of
from deltastore.kernels.inversion import RULE

USUAL = Hyper(1e-6, 0.9, 0.999, 1e-8, 0.01, 100)
UNIT = 2.0**-24


def units(hyper: Hyper, name: str) -> float:
    return float(rule_of(hyper)[name]) / UNIT


def test_a_rule_is_a_row_of_the_kernels_type() -> None:
    rule = rule_of(USUAL)
    assert rule.dtype == RULE
    assert problem_of(USUAL) is None
    assert float(rule["step_size"]) == pytest.approx(1e-6 / (1 - 0.9**100), rel=UNIT)
    assert float(rule["root_scale"]) == pytest.approx(1 / math.sqrt(1 - 0.999**100), rel=UNIT)
    assert rule["eps"] == np.float32(1e-8)
    assert rule["growth"] == 1.0
    assert float(rule_of(replace(USUAL, lr=0.1, weight_decay=1.0))["growth"]) == pytest.approx(
        1 / 0.9, rel=UNIT
    )


def test_coefficients_of_the_usual_step() -> None:
    """Two roundings where decay is lost in FP32, and more with a decay that is not."""
    assert units(USUAL, "of_value") == pytest.approx(2.0, rel=0.002)
    assert units(replace(USUAL, weight_decay=0.0), "of_value") == pytest.approx(2.0, rel=0.002)
    assert units(replace(USUAL, single=True), "of_value") == pytest.approx(2.168, rel=0.002)
    assert 4.0 < units(replace(USUAL, lr=1e-4, weight_decay=0.1), "of_value") < 5.5
    assert 5.0 < units(replace(USUAL, lr=1e-4, weight_decay=0.1, single=True), "of_value") < 6.5
    assert units(USUAL, "of_update") == pytest.approx(16, abs=0.1)


def test_no_bias_correction_means_no_error_of_one() -> None:
    plain = replace(USUAL, bias_correction=False, single=True)
    assert rule_of(plain)["step_size"] == np.float32(1e-6)
    assert rule_of(plain)["root_scale"] == 1.0
    assert units(plain, "of_update") == pytest.approx(25.7, abs=0.2)


@pytest.mark.parametrize("step", [1, 2, 10, 1000, 10**6])
@pytest.mark.parametrize("lr", [0.0, 1e-8, 1e-6, 1e-3, 0.1])
@pytest.mark.parametrize("decay", [0.0, 0.01, 1.0])
def test_single_coefficients_never_narrow_the_interval(step: int, lr: float, decay: float) -> None:
    double = replace(USUAL, lr=lr, weight_decay=decay, step=step)
    single = replace(double, single=True)
    for name in ("of_value", "of_update", "floor"):
        assert rule_of(single)[name] >= rule_of(double)[name] >= 0
    for name in ("step_size", "root_scale", "eps", "growth"):
        assert rule_of(single)[name] == rule_of(double)[name]


def test_bias_corrections_in_single_fade_with_the_steps() -> None:
    errors = [corrections_of(replace(USUAL, step=10**k, single=True)).second_error for k in range(6)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] < 2e-3
    assert errors[5] < 1e-15


def test_the_bias_correction_is_the_one_that_torch_computes() -> None:
    for step in (1, 7, 12345):
        found = corrections_of(replace(USUAL, step=step))
        assert (found.first, found.second) == (1 - 0.9**step, 1 - 0.999**step)


def test_tiny_squares_are_covered_where_eps_is_far_above_their_root() -> None:
    assert covers_tiny_squares(USUAL)
    assert covers_tiny_squares(replace(USUAL, eps=1e-15))
    assert not covers_tiny_squares(replace(USUAL, eps=1e-18))
    assert not covers_tiny_squares(replace(USUAL, eps=0.0))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"lr": math.nan}, "lr is nan"),
        ({"lr": math.inf}, "lr is inf"),
        ({"lr": -1e-6}, "lr is -1e-06, less than 0"),
        ({"lr": 1e-36}, "lr is 1e-36, too small"),
        ({"lr": 1e35, "weight_decay": 0.0}, "lr is 1e+35, too large"),
        ({"lr": 1e30, "weight_decay": 0.0, "beta1": 1 - 2.0**-20, "step": 1}, "lr 1e+30 over"),
        ({"beta1": 1.0}, "beta1 is 1.0, not less than 1"),
        ({"beta2": math.nan}, "beta2 is nan"),
        ({"beta2": -0.1}, "beta2 is -0.1"),
        (
            {"beta2": 1 - 1e-9, "single": True},
            "beta2 0.999999999 is too near to 1 for a bias correction in FP32",
        ),
        ({"beta2": 1 - 2.0**-52, "step": 1}, "too near to 1 for a bias correction in double at step 1"),
        ({"eps": -1e-8}, "eps is -1e-08"),
        ({"eps": 1e-40}, "eps is 1e-40, too small"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1"),
        ({"lr": 1.0, "weight_decay": 1.0}, "lr 1.0 times weight_decay 1.0 is 1.0, not less than 1"),
        ({"lr": 0.99999, "weight_decay": 1.0, "single": True}, "too near to 1"),
        ({"step": 0}, "the step counter is 0"),
        ({"step": 1 << 60}, "the step counter is"),
    ],
)
def test_a_step_that_cannot_be_taken_back_is_told_with_its_numbers(
    changed: dict[str, Any], said: str
) -> None:
    problem = problem_of(replace(USUAL, **changed))
    assert problem is not None
    assert said in problem


@pytest.mark.parametrize("lr", [2.0**-100, 1e-20, 0.5, 1e20, 2.0**99])
@pytest.mark.parametrize("eps", [0.0, 2.0**-100, 1.0, 2.0**100])
@pytest.mark.parametrize("single", [False, True])
def test_every_step_without_a_problem_has_finite_coefficients(lr: float, eps: float, single: bool) -> None:
    for decay in (0.0, 0.5 / lr, (1 - 2.0**-14) / lr):
        for step in (1, 10**9):
            hyper = Hyper(lr, 0.9, 0.9999, eps, decay, step, single=single)
            if problem_of(hyper) is None:
                assert all(np.isfinite(rule_of(hyper)[name]) for name in RULE.names or ())
    assert problem_of(Hyper(lr, 0.9, 0.9999, eps, 0.0, 100, single=single)) is None
