"""Boxes as runs of neighbouring elements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltastore.checkpoints.runs import box_runs


@st.composite
def boxes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    shape = tuple(draw(st.lists(st.integers(0, 6), max_size=4)))
    start = tuple(draw(st.integers(0, extent)) for extent in shape)
    size = tuple(draw(st.integers(0, extent - at)) for extent, at in zip(shape, start, strict=True))
    return shape, start, size


@given(box=boxes())
def test_runs_are_the_box_in_its_own_order(box: tuple[tuple[int, ...], ...]) -> None:
    shape, start, size = box
    flat = np.arange(int(np.prod(shape))).reshape(shape)
    wanted = flat[tuple(slice(at, at + extent) for at, extent in zip(start, size, strict=True))].reshape(-1)
    runs = box_runs(shape, start, size)
    found = (runs.starts[:, None] + np.arange(runs.length)).reshape(-1)
    assert found.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("shape", "start", "size", "length", "count"),
    [
        ((), (), (), 1, 1),
        ((4, 5), (0, 0), (4, 5), 20, 1),
        ((4, 5), (1, 0), (2, 5), 10, 1),
        ((4, 5), (1, 1), (2, 3), 3, 2),
        ((2, 4, 5), (0, 1, 0), (2, 2, 5), 10, 2),
        ((3, 1, 5), (1, 0, 0), (2, 1, 5), 10, 1),
        ((4, 5), (2, 3), (0, 2), 0, 0),
    ],
)
def test_runs_are_as_long_as_they_can_be(
    shape: tuple[int, ...], start: tuple[int, ...], size: tuple[int, ...], length: int, count: int
) -> None:
    runs = box_runs(shape, start, size)
    assert (runs.length, len(runs.starts)) == (length, count)
