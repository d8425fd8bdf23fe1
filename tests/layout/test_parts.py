"""Parts of tensors: boxes, and runs of a flat buffer, which share the memory they are cut from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deltastore.errors import InputError
from deltastore.layout.parts import Part, flat_boxes, flat_parts, intersection, slices_at

shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
filled = st.lists(st.integers(1, 5), max_size=4).map(tuple)


@given(shapes, st.data())
def test_a_run_is_its_boxes_in_order(shape: tuple[int, ...], data: st.DataObject) -> None:
    size = math.prod(shape)
    first = data.draw(st.integers(0, size))
    count = data.draw(st.integers(0, size - first))
    numbers = np.arange(size).reshape(shape)
    boxes = list(flat_boxes(shape, first, count))
    found = [numbers[slices_at(start, extent, (0,) * len(shape))].ravel() for start, extent in boxes]
    assert np.concatenate([np.zeros(0, int), *found]).tolist() == list(range(first, first + count))
    assert all(len(part) for part in found)
    assert len(boxes) <= max(2 * len(shape) - 1, 1)


@given(filled, st.data(), st.booleans())
def test_parts_of_a_run_share_its_memory(shape: tuple[int, ...], data: st.DataObject, of_torch: bool) -> None:
    size = math.prod(shape)
    first = data.draw(st.integers(0, size))
    count = data.draw(st.integers(0, size - first))
    buffer: Any = torch.zeros(count + 3) if of_torch else np.zeros(count + 3, np.float32)
    parts = flat_parts(buffer[1 : 1 + count], shape, first)
    whole = np.zeros(shape, np.float32)
    buffer[1 : 1 + count] = (torch if of_torch else np).arange(1.0, count + 1)
    for part in parts:
        assert part.shape == shape
        whole[slices_at(part.start, tuple(part.tensor.shape), (0,) * len(shape))] = np.asarray(part.tensor)
        part.tensor[...] = -1.0
    wanted = [*[0.0] * first, *range(1, count + 1), *[0.0] * (size - first - count)]
    assert whole.ravel().tolist() == wanted
    assert buffer.tolist() == [0.0, *[-1.0] * count, 0.0, 0.0]


@given(filled, st.data())
def test_parts_of_a_run_inside_a_box(shape: tuple[int, ...], data: st.DataObject) -> None:
    start = tuple(data.draw(st.integers(0, length)) for length in shape)
    extent = tuple(data.draw(st.integers(0, whole - at)) for whole, at in zip(shape, start, strict=True))
    size = math.prod(extent)
    first = data.draw(st.integers(0, size))
    count = data.draw(st.integers(0, size - first))
    numbers = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    run = numbers[slices_at(start, extent, (0,) * len(shape))].ravel()[first : first + count]
    parts = flat_parts(run, shape, first, box=(start, extent))
    for part in parts:
        assert np.shares_memory(part.tensor, run)
        there = numbers[slices_at(part.start, tuple(part.tensor.shape), (0,) * len(shape))]
        assert part.tensor.tolist() == there.tolist()
    assert sum(part.tensor.size for part in parts) == count
    assert len(parts) <= max(2 * len(shape) - 1, 1)


@pytest.mark.parametrize(
    ("box", "count"),
    [
        (((0,), (2, 3)), 1),
        (((0, 0), (6,)), 1),
        (((0, 1), (2, 3)), 6),
        (((-1, 0), (2, 3)), 1),
        (((0, 0), (-2, -3)), 1),
        (((1, 0), (1, 3)), 4),
    ],
)
def test_a_box_outside_its_tensor(box: tuple[tuple[int, ...], tuple[int, ...]], count: int) -> None:
    with pytest.raises(InputError, match="box") as refusal:
        flat_parts(np.zeros(count), (2, 3), 0, box=box)
    assert refusal.value.code == "wrong_shape"


@pytest.mark.parametrize(("count", "first"), [(7, 0), (1, 6), (2, 5), (0, 7), (1, -1)])
def test_a_run_outside_its_tensor(count: int, first: int) -> None:
    with pytest.raises(InputError) as refusal:
        flat_parts(np.zeros(count), (2, 3), first)
    assert refusal.value.code == "wrong_shape"


def test_a_run_of_two_axes_is_none() -> None:
    with pytest.raises(InputError, match=r"elements of shape \[2, 3\]") as refusal:
        flat_parts(np.zeros((2, 3)), (2, 3), 0)
    assert refusal.value.code == "wrong_shape"


@pytest.mark.parametrize("tensor", [np.zeros(12)[::2], torch.zeros(12)[::2]])
def test_a_run_with_gaps_would_be_a_copy(tensor: Any) -> None:
    with pytest.raises(InputError, match="contiguous") as refusal:
        flat_parts(tensor, (2, 3), 0)
    assert refusal.value.code == "wrong_memory"


@pytest.mark.parametrize(
    ("size", "shape", "start"),
    [
        ((2, 3), (2, 3), (0, 1)),
        ((2, 3), (2, 3), (-1, 0)),
        ((3, 3), (2, 3), (0, 0)),
        ((2,), (2, 3), (0, 0)),
        ((2, 3), (2, 3), (0,)),
        ((2, 3), (6,), (0, 0)),
        ((), (1,), (0,)),
        ((0, 3), (2, 3), (3, 0)),
    ],
)
def test_no_box_of_the_tensor(size: tuple[int, ...], shape: tuple[int, ...], start: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="no box") as refusal:
        Part(np.zeros(size), shape, start)
    assert refusal.value.code == "wrong_shape"


@pytest.mark.parametrize("start", [(0, 0), (2, 0), (0, 3), (2, 3)])
def test_a_part_may_have_no_elements(start: tuple[int, ...]) -> None:
    part = Part(np.zeros((0, 0)), (2, 3), start)
    assert part.start == start


def test_sequences_and_torch_sizes_become_tuples() -> None:
    part = Part(torch.zeros(2, 3), torch.Size([4, 3]), torch.Size([2, 0]))
    assert (type(part.shape), type(part.start)) == (tuple, tuple)
    assert Part(np.zeros(2), [4], [1]).start == (1,)  # type: ignore[arg-type]


@given(st.data())
def test_an_intersection_against_counting(data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, 3))
    ends = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=rank, max_size=rank)
    (one, other), count = (data.draw(ends), data.draw(ends)), np.zeros((8,) * rank, int)
    for box in (one, other):
        count[tuple(slice(first, first + length) for first, length in box)] += 1
    shared = intersection(
        tuple(first for first, _ in one),
        tuple(length for _, length in one),
        tuple(first for first, _ in other),
        tuple(length for _, length in other),
    )
    wanted = np.zeros_like(count)
    if shared is not None:
        wanted[slices_at(*shared, (0,) * rank)] = 1
    assert ((count == 2) == wanted).all()
