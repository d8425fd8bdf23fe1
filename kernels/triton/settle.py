"""What is left of an inversion: a block whose old bits have not the digest that was wanted."""

from __future__ import annotations

from typing import Any, Final

import triton
import triton.language as tl

from deltastore.kernels.inversion import MOST_UNCERTAIN, Outcome
from deltastore.kernels.triton.boxes import (
    BOX_AT,
    BOX_ELEMENTS,
    BOX_RULE,
    BOX_SEED,
    BOX_WIDTH,
    TASK_BLOCK,
    TASK_BOX,
    TASK_PART,
    TASK_WIDTH,
    words_of,
)
from deltastore.kernels.triton.inverse import RULE_WIDTH, inverted
from deltastore.kernels.triton.weights import weights_at

__all__ = ["SETTLE_WARPS", "settle_kernel"]

SETTLE_WARPS: Final = 16

BLOCK = tl.constexpr(2048)
MOST = tl.constexpr(MOST_UNCERTAIN)
TRIES = tl.constexpr(8192)
"""The power of two that holds all combinations of three candidates for each of eight elements."""

SETTLED = tl.constexpr(int(Outcome.SETTLED))
UNCHANGED = tl.constexpr(int(Outcome.UNCHANGED))
UNEXPLAINED = tl.constexpr(int(Outcome.UNEXPLAINED))


@triton.jit
def first_fit(from_last: tl.tensor, to_low: tl.tensor, to_high: tl.tensor, missing: tl.tensor) -> Any:
    """The first combination of candidates that changes the digest by ``missing``; TRIES where none does.

    ``from_last``: each uncertain element's number from the last one, and MOST for others; ``to_low`` and
    ``to_high``: what taking the candidate adds to the digest. Where elements are fewer, what is beyond their
    combinations repeats them, and comes later.
    """
    combination = tl.arange(0, TRIES)
    rest = combination
    change = rest.to(tl.uint64) * 0
    for place in tl.static_range(MOST):
        mine = from_last == place
        lower = tl.sum(tl.where(mine, to_low, 0), 0)
        higher = tl.sum(tl.where(mine, to_high, 0), 0)
        digit = rest % 3
        change += tl.where(digit == 1, lower, tl.where(digit == 2, higher, 0))
        rest = rest // 3
    return tl.min(tl.where(change == missing, combination, TRIES), 0)


@triton.jit
def settle_kernel(
    tasks: tl.tensor,
    boxes: tl.tensor,
    sides: tl.tensor,
    rules: tl.tensor,
    weights: tl.tensor,
    new: tl.tensor,
    old: tl.tensor,
    digests: tl.tensor,
    known: tl.tensor,
    uncertain: tl.tensor,
    wanted: tl.tensor,
    outcomes: tl.tensor,
) -> None:
    """Write the first combination of candidates that has the digest ``wanted[task]``, or the new bits if they
    have it, and the ``Outcome``.

    Combination c gives uncertain element number k of n the candidate ``c // 3**(n - 1 - k) % 3`` of (as
    inverted, low, high): the order in which the reference tries them.
    """
    number = tl.program_id(0)
    task = tasks + number * TASK_WIDTH
    box = boxes + tl.load(task + TASK_BOX) * BOX_WIDTH
    block = tl.load(task + TASK_BLOCK)
    start = tl.load(task + TASK_PART).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    inside = lane < tl.load(box + BOX_ELEMENTS) - start
    at = tl.load(box + BOX_AT) + start + lane
    missing = tl.load(wanted + number) - tl.load(known + block)
    count = tl.load(uncertain + block).to(tl.int32)
    best = count * 0 + TRIES
    if (count > 0) & (count <= MOST):
        places, masters, means, squares = words_of(box, sides, start, inside)
        rule = rules + tl.load(box + BOX_RULE) * RULE_WIDTH
        _, before, low, high, doubt = inverted(masters, means, squares, rule)
        doubt = doubt & inside
        factors = weights_at(places, weights, doubt) * tl.load(box + BOX_SEED).to(tl.uint64, bitcast=True)
        to_low = (low.to(tl.uint64) - before.to(tl.uint64)) * factors
        to_high = (high.to(tl.uint64) - before.to(tl.uint64)) * factors
        from_last = tl.where(doubt, count - tl.cumsum(doubt.to(tl.int32), 0), MOST)
        best = first_fit(from_last, to_low, to_high, missing.to(tl.uint64, bitcast=True))
        chosen = before
        left = best
        for place in tl.static_range(MOST):
            mine = from_last == place
            chosen = tl.where(mine & (left % 3 == 1), low, chosen)
            chosen = tl.where(mine & (left % 3 == 2), high, chosen)
            left = left // 3
        tl.store(old + at, chosen.to(tl.int16), mask=doubt & (best < TRIES))
    outcome = tl.where(best < TRIES, SETTLED, UNEXPLAINED)
    if (best == TRIES) & (tl.load(digests + block) == tl.load(wanted + number)):
        tl.store(old + at, tl.load(new + at, mask=inside, other=0), mask=inside)
        outcome = outcome * 0 + UNCHANGED
    tl.store(outcomes + number, outcome)
