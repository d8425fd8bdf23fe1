"""The bound against cases that were worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deltastore.demo.bound import FIXED_BYTES, Bound, lower_bound
from deltastore.entropy import count_bits, position_bits, step_bits

Bits = np.ndarray[Any, Any]


def bf16(*bits: int) -> Bits:
    return np.array(bits, np.uint16)


@pytest.mark.parametrize(
    ("elements", "changed", "bits"),
    [
        (2, 1, 2.0),  # either of two: one bit an element
        (8, 4, 8.0),
        (4, 1, 3.245112497836531),  # 4 · (1/4 · 2 + 3/4 · log2(4/3))
        (1000, 10, 80.79313589591118),  # 10 · log2(100) + 990 · log2(1000/990)
        (5, 0, 0.0),
        (5, 5, 0.0),
        (0, 0, 0.0),
    ],
)
def test_positions(elements: int, changed: int, bits: float) -> None:
    assert position_bits(elements, changed) == pytest.approx(bits, rel=1e-12)


@pytest.mark.parametrize(
    ("steps", "bits"),
    [
        ([1, 1, -1, -1], 4.0),
        ([1, -1, 2, -2], 8.0),
        ([1, 1, 1, -1], 3.245112497836531),
        ([7, 7, 7], 0.0),
        ([], 0.0),
    ],
)
def test_steps(steps: list[int], bits: float) -> None:
    assert step_bits(np.array(steps, np.int16)) == pytest.approx(bits, rel=1e-12)
    counts = np.unique(steps, return_counts=True)[1].tolist()
    assert count_bits(counts) == pytest.approx(bits, rel=1e-12)


def test_positions_count_within_a_tensor_and_steps_over_all_of_them() -> None:
    old = {"a": bf16(0x3F80, 0x3F80), "b": bf16(0xBF80, 0x0001, 0x4000, 0x4000)}
    new = {"a": bf16(0x3F81, 0x3F80), "b": bf16(0xBF80, 0x0000, 0x4000, 0x4000)}
    bound = lower_bound(old, new)
    assert (bound.elements, bound.changed) == (6, 2)
    assert bound.position_bits == pytest.approx(2 + 3.245112497836531, rel=1e-12)
    assert bound.step_bits == 2.0  # +1 and -1, once each
    assert bound.nbytes == pytest.approx((2 + 3.245112497836531 + 2) / 8, rel=1e-12)


def test_a_step_is_counted_in_representable_values() -> None:
    """Away from zero on both sides: patterns go up by one, but values go opposite ways."""
    apart = lower_bound({"a": bf16(0x3F80, 0xBF80)}, {"a": bf16(0x3F81, 0xBF81)})
    assert apart.step_bits == 2.0
    together = lower_bound({"a": bf16(0x3F80, 0xBF81)}, {"a": bf16(0x3F81, 0xBF80)})
    assert together.step_bits == 0.0


def test_minus_zero_to_zero_is_a_change() -> None:
    bound = lower_bound({"a": bf16(0x8000, 0x8000)}, {"a": bf16(0x0000, 0x8000)})
    assert (bound.changed, bound.position_bits, bound.step_bits) == (1, 2.0, 0.0)


def test_a_large_tensor_counts_in_pieces() -> None:
    """One of the last two elements changed, and these two are a piece: two bits, whatever stands before."""
    old = np.zeros((2, 2**19 + 1), np.uint16)
    new = old.copy()
    new[1, -1] = 1
    bound = lower_bound({"a": old}, {"a": new})
    assert (bound.elements, bound.changed, bound.position_bits) == (2**20 + 2, 1, 2.0)


def test_nothing_changed_has_no_ratio() -> None:
    same = {"a": bf16(1, 2, 3)}
    bound = lower_bound(same, same)
    assert (bound.changed, bound.nbytes, bound.ratio(100)) == (0, 0.0, None)
    assert lower_bound({}, {}) == Bound(0, 0, 0.0, 0.0)


def test_the_ratio_leaves_the_fixed_bytes_out() -> None:
    bound = Bound(elements=1000, changed=10, position_bits=6000.0, step_bits=2000.0)
    assert bound.nbytes == 1000.0
    assert bound.ratio(FIXED_BYTES + 1250) == 1.25
    assert bound.ratio(FIXED_BYTES) == 0.0


@pytest.mark.parametrize(("changed", "judged"), [(299, False), (300, True), (3000, True), (3001, False)])
def test_the_ratio_is_promised_from_three_in_a_thousand_to_three_in_a_hundred(
    changed: int, judged: bool
) -> None:
    assert Bound(100_000, changed, 1.0, 1.0).judged is judged
