"""Old weights, moments and hyper-parameters that are hard to take back, and what an interval must hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.detect.adamw.bound import covers_tiny_squares, rule_of
from deltastore.detect.adamw.hyper import Hyper, corrections_of, problem_of
from deltastore.kernels.reference.inversion import bf16_bits, invert_elements
from tests.doubles.optimizers import Floats

LRS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
DECAYS = (0.0, 0.01, 0.1, 0.05, 1.0, 2.0**-5)
EPSILONS = (0.0, 1e-15, 1e-8, 1e-3)
BETAS = ((0.9, 0.95), (0.9, 0.999), (0.0, 0.0), (0.999, 0.9))
STEPS = (1, 2, 10, 1000, 10**6)
COUNT = 4096


def hypers(seed: int, count: int, *, single: bool) -> Iterator[Hyper]:
    """So many of all combinations; the usual one first."""
    yield Hyper(1e-6, 0.9, 0.999, 1e-8, 0.01, 100, single=single)
    random = np.random.default_rng(seed)
    for _ in range(count - 1):
        lr, decay, eps, step = (random.choice(values) for values in (LRS, DECAYS, EPSILONS, STEPS))
        beta1, beta2 = BETAS[random.integers(len(BETAS))]
        yield Hyper(
            float(lr), beta1, beta2, float(eps), float(decay), int(step), bool(random.random() < 0.9), single
        )


def shift(values: Floats, ulps: NDArray[Any]) -> Floats:
    """Values some FP32 units in the last place away."""
    return (values.view(np.int32) + ulps.astype(np.int32)).view(np.float32)


def moments(random: np.random.Generator, count: int) -> tuple[Floats, Floats]:
    """Means and squares of many scales and proportions, some 0, some denormal."""
    size = 10.0 ** random.uniform(-14, 6, count)
    mean = size * random.standard_normal(count)
    square = (size * 10.0 ** random.uniform(-2, 3, count)) ** 2
    mean[::97] = 0.0
    square[::89] = 0.0
    square[5::97] = 10.0 ** random.uniform(-44.5, -37.5, len(square[5::97]))
    mean[7::97] = 10.0 ** random.uniform(-44.5, -37.5, len(mean[7::97]))
    return mean.astype(np.float32), square.astype(np.float32)


def weights(random: np.random.Generator, update: Floats) -> Floats:
    """Old weights: usual, near BF16 midpoints, at binade edges, far below the update, 0, denormal, huge."""
    count = len(update)
    usual = (random.standard_normal(count) * 10.0 ** random.uniform(-4, 1, count)).astype(np.float32)
    middle = ((usual.view(np.int32) & ~0xFFFF) | 0x8000).view(np.float32)
    edge = np.ldexp(np.float32(1), random.integers(-30, 4, count)).astype(np.float32)
    sign = np.where(random.random(count) < 0.5, np.float32(-1), np.float32(1))
    with np.errstate(all="ignore"):
        below = (update * 10.0 ** random.uniform(-9, 1, count)).astype(np.float32)
    kinds = [
        usual,
        shift(middle, random.integers(-40, 41, count)),
        shift(edge, random.integers(-3, 4, count)) * sign,
        np.where(np.isfinite(below) & (np.abs(below) < 1e37), below, usual),
        np.zeros(count, np.float32) * sign,
        shift(np.zeros(count, np.float32), random.integers(0, 1 << 23, count)) * sign,
        (random.uniform(1e30, 1e37, count) * sign).astype(np.float32),
    ]
    part = random.choice(len(kinds), count, p=(0.25, 0.3, 0.1, 0.2, 0.05, 0.05, 0.05))
    return np.choose(part, kinds).astype(np.float32)


@dataclass(frozen=True)
class Interval:
    """x - r and x + r of every element, exactly, and where the kernel knows of neither."""

    before: NDArray[np.float64]
    reach: NDArray[np.float64]
    uncertain: NDArray[np.bool_]

    def misses(self, old: Floats) -> NDArray[np.bool_]:
        """Which old weights are not in it."""
        with np.errstate(invalid="ignore"):
            inside = np.abs(old.astype(np.float64) - self.before) <= self.reach
        return np.where(np.isfinite(self.before) & np.isfinite(self.reach), ~inside, ~self.uncertain)

    def part(self, old: Floats) -> float:
        """The largest part of its half width that an old weight was off."""
        sound = np.isfinite(self.before) & np.isfinite(self.reach)
        return float(np.max((np.abs(old - self.before) / self.reach)[sound]))


def interval(theta: Floats, mean: Floats, square: Floats, rule: Any) -> Interval:
    """The formulas of kernels.inversion, proved to be those of the reference by what comes of them."""
    with np.errstate(all="ignore"):
        update = (rule["step_size"] * mean) / (np.sqrt(square) * rule["root_scale"] + rule["eps"])
        before = (theta + update) * rule["growth"]
        reach = (np.abs(theta) * rule["of_value"] + np.abs(update) * rule["of_update"]) + rule["floor"]
        low, high = bf16_bits(before - reach), bf16_bits(before + reach)
    assert {part.dtype for part in (update, before, reach)} == {np.dtype(np.float32)}
    _, old, least, most, uncertain = invert_elements(theta, mean, square, rule)
    assert (old == bf16_bits(before)).all()
    assert (least == low).all()
    assert (most == high).all()
    return Interval(before.astype(np.float64), reach.astype(np.float64), uncertain)


def ordered(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def check(old: Floats, theta: Floats, mean: Floats, square: Floats, hyper: Hyper) -> Interval:
    """No old weight is outside, and no BF16 value is named as certain that was not there."""
    assert problem_of(hyper) is None
    rule = rule_of(hyper)
    found = interval(theta, mean, square, rule)
    wrong = np.flatnonzero(found.misses(old))
    assert not len(wrong), (
        hyper,
        *(float(part[wrong[0]]) for part in (old, theta, mean, square)),
        len(wrong),
    )
    _, named, low, high, uncertain = invert_elements(theta, mean, square, rule)
    truth = bf16_bits(old)
    assert (named[~uncertain] == truth[~uncertain]).all()
    sound = np.isfinite(ordered(low)) & np.isfinite(ordered(high))
    assert (ordered(low) <= ordered(truth))[sound].all()
    assert (ordered(truth) <= ordered(high))[sound].all()
    return found


def update_of(hyper: Hyper, mean: Floats, square: Floats) -> Floats:
    found = corrections_of(hyper)
    with np.errstate(all="ignore"):
        root = np.sqrt(square.astype(np.float64) / found.second) + hyper.eps
        return (hyper.lr / found.first * mean / root).astype(np.float32)


def case(random: np.random.Generator, hyper: Hyper, *, careful: bool) -> tuple[Floats, Floats, Floats]:
    """Old weights and moments. ``careful``: squares below 2^-126 only where the bound covers them."""
    mean, square = moments(random, COUNT)
    if careful and not covers_tiny_squares(hyper):
        square[square < 2.0**-126] = 0.0
    return weights(random, update_of(hyper, mean, square)), mean, square
