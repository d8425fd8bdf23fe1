"""Changed positions against a comparison of bytes, for any memory layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltastore.kernels.reference.changed import changed_positions

Bits = np.ndarray[Any, Any]


def naive_positions(old: Bits, new: Bits) -> list[int]:
    pairs = zip(old.flatten().tolist(), new.flatten().tolist(), strict=True)
    return [place for place, (before, after) in enumerate(pairs) if before != after]


@given(
    width=st.sampled_from([8, 16, 32, 64]),
    shape=st.lists(st.integers(0, 6), max_size=4).map(tuple),
    order=st.permutations(range(4)),
    seed=st.integers(0, 2**32 - 1),
    density=st.sampled_from([0.0, 0.1, 1.0]),
)
def test_positions_are_row_major_whatever_the_memory(
    width: int, shape: tuple[int, ...], order: list[int], seed: int, density: float
) -> None:
    rng = np.random.default_rng(seed)
    old = rng.integers(0, 2**width - 1, shape, dtype=f"u{width // 8}", endpoint=True)
    new = np.where(rng.random(shape) < density, old ^ old.dtype.type(1), old).astype(old.dtype)
    axes = [axis for axis in order if axis < len(shape)]
    pairs = [(old, new), (old.transpose(axes), new.transpose(axes)), (np.asfortranarray(old), new)]
    pairs.append((old[..., ::-1] if shape else old, new[..., ::-1] if shape else new))
    for before, after in pairs:
        positions = changed_positions(before, after)
        assert positions.dtype == np.uint32
        assert positions.tolist() == naive_positions(before, after)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (1, 1)])
def test_no_elements_and_one(shape: tuple[int, ...]) -> None:
    bits = np.full(shape, 7, dtype="<u2")
    assert changed_positions(bits, bits).tolist() == []
    assert changed_positions(bits, ~bits).tolist() == list(range(bits.size))


def test_bits_are_compared_not_values() -> None:
    """-0.0 is not +0.0, two NaNs of one payload are equal, of two payloads are not."""
    old = np.array([0x0000, 0x8000, 0x7FC0, 0x7FC0, 0x7FA5, 0xFFC0], dtype="<u2")
    new = np.array([0x8000, 0x8000, 0x7FC0, 0x7FC1, 0x7FE5, 0x7FC0], dtype="<u2")
    assert changed_positions(old, new).tolist() == [0, 3, 4, 5]


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_a_flip_of_any_single_bit_shows(width: int) -> None:
    old = np.zeros(width, dtype=f"u{width // 8}")
    new = np.array([1 << bit for bit in range(width)], dtype=old.dtype)
    assert changed_positions(old, new).tolist() == list(range(width))
