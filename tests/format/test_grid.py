"""Chunk grids against NumPy's own numbering."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deltastore.format.limits import CHUNK_ELEMENTS
from deltastore.kernels.grid import Box, ChunkGrid
from deltastore.layout.cutting import plain_chunk

Shape = tuple[int, ...]


@st.composite
def grids(draw: st.DrawFn, least: int = 0) -> ChunkGrid:
    """Grids of one to five axes, some of extent 0, some with chunks longer than their axis."""
    rank = draw(st.integers(1, 5))
    extent = tuple(draw(st.integers(least, 7 if rank < 4 else 4)) for _ in range(rank))
    chunk = tuple(draw(st.integers(1, 9)) for _ in range(rank))
    return ChunkGrid(extent, chunk)


@st.composite
def cut_boxes(draw: st.DrawFn) -> tuple[Shape, Box]:
    """An array of any extent, and any box inside it that holds an element."""
    extent = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=5)))
    start = tuple(draw(st.integers(0, length - 1)) for length in extent)
    size = tuple(draw(st.integers(1, length - at)) for length, at in zip(extent, start, strict=True))
    return extent, Box(start, size)


@settings(max_examples=300)
@given(grid=grids())
@example(grid=ChunkGrid((3, 0), (1, 1)))
@example(grid=ChunkGrid((5,), (9,)))
def test_chunks_are_numbered_row_major_and_cover_every_element_once(grid: ChunkGrid) -> None:
    assert grid.counts == tuple(math.ceil(e / c) for e, c in zip(grid.extent, grid.chunk, strict=True))
    assert len(grid) == math.prod(grid.counts)
    seen = np.zeros(grid.extent, dtype=np.int64)
    places = list(product(*map(range, grid.counts)))
    for (number, box), place in zip(grid.boxes(), places, strict=True):
        assert grid.coordinates(number) == place
        assert box == grid.box(number)
        assert box.elements == seen[box.slices].size
        assert all(1 <= size <= step for size, step in zip(box.size, grid.chunk, strict=True))
        seen[box.slices] += 1
    assert bool((seen == 1).all())


@settings(max_examples=300)
@given(grid=grids(least=1), seed=st.integers(0, 2**32 - 1))
def test_vectorised_forms_agree_with_the_plain_ones(grid: ChunkGrid, seed: int) -> None:
    chunks = np.random.default_rng(seed).integers(0, len(grid), 40)
    for axis in range(len(grid.extent)):
        along = grid.coordinate_along(chunks, axis)
        assert along.tolist() == [grid.coordinates(int(chunk))[axis] for chunk in chunks]
    elements = grid.elements(chunks)
    assert elements.dtype == np.int64
    assert elements.tolist() == [grid.box(int(chunk)).elements for chunk in chunks]


@settings(max_examples=500)
@given(drawn=cut_boxes())
@example(drawn=((2, 3), Box((1, 0), (1, 3))))
@example(drawn=((4,), Box((1,), (2,))))
@example(drawn=((2, 3, 4), Box((0, 1, 0), (2, 1, 4))))
@example(drawn=((2, 3, 4), Box((0, 0, 1), (2, 3, 2))))
@example(drawn=((2, 1, 4), Box((0, 0, 1), (2, 1, 2))))
def test_locating_positions_of_any_box(drawn: tuple[Shape, Box]) -> None:
    """Where an element of the box is in the tensors: its member, and its row-major index there."""
    extent, box = drawn
    positions = np.arange(box.elements, dtype=np.uint32)
    inside = np.unravel_index(positions, box.size)
    places = [part + start for part, start in zip(inside, box.start, strict=True)]
    if len(extent) > 1:
        expected = np.ravel_multi_index(tuple(places[1:]), extent[1:])
    else:
        expected = np.zeros(box.elements, dtype=np.int64)
    members, flat = ChunkGrid(extent, box.size).locate(box, positions)
    assert members.dtype == flat.dtype == np.int64
    assert members.tolist() == places[0].tolist()
    assert flat.tolist() == expected.tolist()
    shuffled = np.random.default_rng(0).permutation(positions)
    assert ChunkGrid(extent, box.size).locate(box, shuffled)[1].tolist() == expected[shuffled].tolist()


def test_locating_beyond_32_bits() -> None:
    extent = (3, 2**17, 2**17)
    box = Box((2, 2**17 - 2, 5), (1, 2, 7))
    members, flat = ChunkGrid(extent, box.size).locate(box, np.array([0, 13], dtype=np.uint32))
    assert members.tolist() == [2, 2]
    assert flat.tolist() == [(2**17 - 2) * 2**17 + 5, (2**17 - 1) * 2**17 + 11]


extents = st.lists(st.one_of(st.integers(0, 9), st.integers(10, 200)), min_size=1, max_size=4)


@settings(max_examples=500)
@given(extent=extents, limit=st.integers(1, 500))
@example(extent=[1], limit=1)
@example(extent=[10], limit=3)
@example(extent=[7, 0, 3], limit=2)
def test_the_plain_grid(extent: list[int], limit: int) -> None:
    """Whole axes from the last on, then the fewest nearly equal parts, then single steps."""
    chunk = plain_chunk(extent, limit)
    assert math.prod(chunk) <= limit
    axis, inner = len(extent) - 1, 1
    while axis >= 0 and inner * max(extent[axis], 1) <= limit:
        assert chunk[axis] == max(extent[axis], 1)
        inner *= max(extent[axis], 1)
        axis -= 1
    if axis >= 0:
        parts = math.ceil(extent[axis] / chunk[axis])
        assert parts == math.ceil(extent[axis] / (limit // inner))
        assert chunk[axis] == math.ceil(extent[axis] / parts)
    assert chunk[: max(axis, 0)] == (1,) * max(axis, 0)


@pytest.mark.spec("DS024")
@given(extent=st.lists(st.one_of(st.integers(0, 3000), st.integers(0, 2**40)), min_size=1, max_size=17))
@example(extent=[1, 2**20])
@example(extent=[1, 2**20 + 1])
@example(extent=[4096, 151_936, 2048])
def test_a_plain_chunk_is_within_the_limit(extent: list[int]) -> None:
    chunk = plain_chunk(extent)
    assert math.prod(chunk) <= CHUNK_ELEMENTS
    assert all(step >= 1 for step in chunk)
    cut = sum(step < length for step, length in zip(chunk, extent, strict=True) if step > 1)
    assert cut <= 1
