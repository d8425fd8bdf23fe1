"""A patch turns the old bits into the new ones: every element type, density and special value."""

from __future__ import annotations

import struct
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deltastore.format.dtypes import DTYPES, Dtype
from deltastore.format.limits import PATCH_SLACK
from deltastore.format.patch import Encoding, encode_patch

from . import naive
from .corpus import DENSITIES, MOTIONS, Change, changes, make_change, seeds, special_values

Bits = np.ndarray[Any, Any]

every_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
every_density = pytest.mark.parametrize("density", DENSITIES.values(), ids=DENSITIES)


def runs_of(data: bytes) -> list[tuple[int, int, int]]:
    """(width, low bits, count) of every run."""
    (count,) = struct.unpack_from("<I", data)
    heads = [struct.unpack_from("<BBHI", data, 4 + 8 * number) for number in range(count)]
    return [(width, low_bits, k) for width, low_bits, _, k in heads]


@every_dtype
@every_density
@pytest.mark.parametrize("may_be_raw", [True, False])
@settings(max_examples=20)
@given(data=st.data())
def test_applied_once_or_twice_it_gives_the_new_bits(
    dtype: Dtype, density: float, may_be_raw: bool, data: st.DataObject
) -> None:
    change = data.draw(changes(dtype, density))
    encoded = change.encode(may_be_raw=may_be_raw)
    patch = change.decode(encoded)
    result = change.old.copy()
    for _ in range(2):
        patch.apply(result, "here")
        assert result.tobytes() == change.new.tobytes()
    assert encoded.count == len(patch.positions) == len(set(patch.positions.tolist()))
    assert len(encoded.data) % 4 == 0
    if may_be_raw:
        assert len(encoded.data) <= naive.section_size(change.old.size * dtype.bits)
    else:
        assert encoded.encoding == Encoding.RUNS
        assert sorted(patch.positions.tolist()) == change.positions.tolist()
    assert len(encoded.data) <= 2 * change.old.nbytes + PATCH_SLACK


@settings(max_examples=300)
@given(change=changes(), may_be_raw=st.booleans(), seed=seeds)
def test_a_half_applied_patch_is_completed(change: Change, may_be_raw: bool, seed: int) -> None:
    """Any mixture of old and new elements, as a writer that was killed leaves it, becomes the new bits."""
    done = np.random.default_rng(seed).random(change.old.size) < 0.5
    mixture = np.where(done, change.new, change.old)
    change.decode(change.encode(may_be_raw=may_be_raw)).apply(mixture, "here")
    assert mixture.tobytes() == change.new.tobytes()


@settings(max_examples=300)
@given(change=changes(most=300), may_be_raw=st.booleans())
@example(change=Change(DTYPES["BF16"], np.zeros(1, "<u2"), np.ones(1, "<u2")), may_be_raw=False)
def test_the_specification_reads_the_same(change: Change, may_be_raw: bool) -> None:
    encoded = change.encode(may_be_raw=may_be_raw)
    found = naive.decode(encoded.data, encoded.encoding, change.dtype, change.old.size)
    assert len(found) == encoded.count
    assert naive.apply(found, change.dtype, change.old.tolist()) == change.new.tolist()


@pytest.mark.spec("DS035")
@settings(max_examples=300)
@given(change=changes(most=600))
def test_every_step_fits_its_width(change: Change) -> None:
    encoded = change.encode(may_be_raw=False)
    half = 2 ** (change.dtype.bits - 1)
    found = naive.decode(encoded.data, encoded.encoding, change.dtype, change.old.size)
    for place, (width, _) in found.items():
        old, new = (naive.to_ordered(int(bits[place]), change.dtype) for bits in (change.old, change.new))
        step = (new - old + half) % (2 * half) - half
        assert width == change.dtype.bits or abs(step) <= 2 ** (width - 1) - 1


@settings(max_examples=60)
@given(change=changes(most=2500))
def test_no_other_set_of_widths_makes_a_smaller_patch(change: Change) -> None:
    """Up to the word or two by which an L chosen near the optimum may miss it."""
    widths = [width for width in naive.WIDTHS if width <= change.dtype.bits]
    half = 2 ** (change.dtype.bits - 1)
    needed = []
    for place in change.positions.tolist():
        old, new = (naive.to_ordered(int(bits[place]), change.dtype) for bits in (change.old, change.new))
        step = (new - old + half) % (2 * half) - half
        needed.append(next(w for w in widths if w == widths[-1] or abs(step) < 2 ** (w - 1)))
    elements = change.old.size

    def size(chosen: tuple[int, ...]) -> int:
        total, floor = 4, 0
        for width in chosen:
            count = sum(floor < need <= width for need in needed)
            ways = [(count * low, count + ((elements - 1) >> low)) for low in range(20)]
            places = min(sum(map(naive.section_size, way)) for way in ways)
            total += 8 + places + naive.section_size(count * width) if count else 0
            floor = width
        return total

    options = [chosen for many in range(1, 7) for chosen in combinations(widths, many)]
    best = min(size(chosen) for chosen in options if chosen[-1] >= max(needed))
    data = change.encode(may_be_raw=False).data
    assert best <= len(data) <= best + 4 * len(runs_of(data))


@every_dtype
def test_every_special_value_turns_into_every_other(dtype: Dtype) -> None:
    values = special_values(dtype)
    old, new = (side.reshape(-1) for side in np.meshgrid(values, values))
    change = Change(dtype, old.copy(), new.copy())
    for may_be_raw in (True, False):
        result = change.old.copy()
        change.decode(change.encode(may_be_raw=may_be_raw)).apply(result, "here")
        assert result.tobytes() == change.new.tobytes()


@every_dtype
@pytest.mark.parametrize("elements", [1, 2, 15, 16, 17, 31, 32, 33, 64, 65, 1023])
def test_odd_sizes(dtype: Dtype, elements: int) -> None:
    for density, motion, may_be_raw in product((0.0, 1.0), MOTIONS, (True, False)):
        change = make_change(dtype, elements, density, motion, np.random.default_rng(elements))
        result = change.old.copy()
        change.decode(change.encode(may_be_raw=may_be_raw)).apply(result, "here")
        assert result.tobytes() == change.new.tobytes()


@pytest.mark.parametrize("where", [0, 1, 2**19, 2**20 - 1])
def test_one_element_of_the_largest_chunk(where: int) -> None:
    old = np.zeros(2**20, "<u2")
    new = old.copy()
    new[where] = 0x8000
    change = Change(DTYPES["BF16"], old, new)
    encoded = change.encode(may_be_raw=True)
    assert encoded.encoding == Encoding.RUNS
    assert len(encoded.data) <= 28
    change.decode(encoded).apply(old, "here")
    assert np.array_equal(old, new)


@every_dtype
@pytest.mark.parametrize("layout", ["transposed", "strided", "reversed", "0-d", "one element"])
def test_the_new_chunk_may_lie_anyhow(dtype: Dtype, layout: str) -> None:
    """What is stored is row-major, whatever the memory."""
    rng = np.random.default_rng(3)
    backing = make_change(dtype, 24 * 10, 1.0, "random", rng).new.reshape(24, 10)
    shapes: dict[str, Bits] = {
        "transposed": backing.T,
        "strided": backing[::2, ::5],
        "reversed": backing[::-1, ::-1],
        "0-d": backing[3, 4, ...],
        "one element": backing[3:4, 4:5],
    }
    new = shapes[layout]
    flat = np.array(new.reshape(-1))
    old = ~flat
    positions = np.arange(flat.size, dtype=np.uint32)
    encoded = encode_patch(dtype, flat.size, positions, old, flat, new)
    if flat.size > 8:
        assert encoded.encoding == Encoding.RAW
    Change(dtype, old, flat).decode(encoded).apply(old, "here")
    assert old.tobytes() == flat.tobytes() == new.tobytes()


def test_steps_of_one_take_two_bits() -> None:
    """Density 2 % in steps of one: about 8 bits for the place and 2 for the step."""
    change = make_change(DTYPES["BF16"], 2**20, 0.02, "one step", np.random.default_rng(0))
    encoded = change.encode(may_be_raw=True)
    assert runs_of(encoded.data)[0][0] == 2
    assert 8 * len(encoded.data) / encoded.count < 10
