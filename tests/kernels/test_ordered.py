"""Ordered-integer space: a bijection that is its own inverse, and in which floating-point values ascend."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltastore.kernels.reference.ordered import ordered, signed_step, step_magnitude

Bits = np.ndarray[Any, Any]

WIDTHS = (8, 16, 32, 64)
FLOATS: dict[str, Any] = {
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "BF16": ml_dtypes.bfloat16,
    "F16": np.float16,
}


def all_bits(width: int) -> Bits:
    return np.arange(2**width, dtype=np.uint64).astype(f"<u{width // 8}")


def signed(bits: Bits) -> Bits:
    return bits.view(f"<i{bits.dtype.itemsize}")


@pytest.mark.parametrize("width", [8, 16])
@pytest.mark.parametrize("floating", [True, False])
def test_it_is_a_bijection_and_its_own_inverse(width: int, floating: bool) -> None:
    bits = all_bits(width)
    there = ordered(bits, floating=floating)
    assert there.dtype == bits.dtype
    assert np.array_equal(np.sort(there), bits)
    assert np.array_equal(ordered(there, floating=floating), bits)
    if not floating:
        assert np.array_equal(there, bits)
    assert not np.shares_memory(there, bits)


@pytest.mark.parametrize("width", WIDTHS)
@given(data=st.data())
def test_it_is_what_the_specification_says(width: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, 2**width - 1), max_size=20))
    bits = np.array(values, dtype=f"<u{width // 8}")
    fold = 2 ** (width - 1) - 1
    expected = [value ^ fold if value >> (width - 1) else value for value in values]
    assert ordered(bits, floating=True).tolist() == expected
    assert ordered(bits, floating=False).tolist() == values
    assert ordered(ordered(bits, floating=True), floating=True).tolist() == values


@pytest.mark.parametrize("name", FLOATS)
def test_values_ascend(name: str) -> None:
    """Between finite values and infinities, one more is the next value that can be represented."""
    dtype = np.dtype(FLOATS[name])
    bits = all_bits(8 * dtype.itemsize)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values = bits.view(dtype).astype(np.float64)
    places = signed(ordered(bits, floating=True)).astype(np.int64)
    order = np.argsort(places)
    order = order[~np.isnan(values[order])]
    assert len(order) > 200
    assert bool((values[order][1:] >= values[order][:-1]).all())
    gaps = np.diff(places[order])
    # FNUZ has its one NaN where -0.0 would be; nothing else stands between two numbers.
    assert sorted(set(gaps.tolist())) == ([1, 2] if name.endswith("FNUZ") else [1])


@pytest.mark.parametrize(("width", "dtype"), [(16, np.float16), (32, np.float32), (64, np.float64)])
@given(data=st.data())
def test_the_next_value_is_one_more(width: int, dtype: type[np.floating[Any]], data: st.DataObject) -> None:
    value = data.draw(st.floats(width=width, allow_nan=False, allow_infinity=False))  # type: ignore[arg-type]
    here = np.array([value], dtype=dtype)
    with np.errstate(over="ignore"):
        above = np.nextafter(here, dtype(np.inf))
    one, two = (
        int(signed(ordered(side.view(f"<u{width // 8}"), floating=True))[0]) for side in (here, above)
    )
    from_negative_zero = bool(here[0] == 0 and np.signbit(here[0]))
    assert two - one == (2 if from_negative_zero else 1)


def test_zeros_and_nan_payloads_keep_places_of_their_own() -> None:
    bits = np.array([0x0000, 0x8000, 0x3F80, 0xBF80, 0x7FC0, 0x7FC1, 0xFFA5, 0xFFFF], dtype="<u2")
    places = signed(ordered(bits, floating=True)).tolist()
    assert places == [0, -1, 0x3F80, -16257, 0x7FC0, 0x7FC1, -0x7FA6, -0x8000]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("width", WIDTHS)
@given(data=st.data())
def test_steps_are_differences_modulo_the_width(width: int, data: st.DataObject) -> None:
    numbers = st.one_of(
        st.integers(0, 2**width - 1), st.sampled_from([0, 1, 2 ** (width - 1) - 1, 2 ** (width - 1)])
    )
    pairs = data.draw(st.lists(st.tuples(numbers, numbers), max_size=20))
    old = np.array([pair[0] for pair in pairs], dtype=f"<u{width // 8}")
    new = np.array([pair[1] for pair in pairs], dtype=f"<u{width // 8}")
    half = 2 ** (width - 1)
    expected = [(after - before + half) % (2 * half) - half for before, after in pairs]
    step = signed_step(old, new)
    assert step.tolist() == expected
    magnitude = step_magnitude(step)
    assert magnitude.dtype == old.dtype
    assert magnitude.tolist() == [abs(value) for value in expected]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (2, 3)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    bits = np.full(shape, 0xFFFF, dtype="<u2")
    there = ordered(bits, floating=True)
    assert there.shape == shape
    assert there.dtype == bits.dtype
    assert there.tolist() == np.full(shape, 0x8000).tolist()
