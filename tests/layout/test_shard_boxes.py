"""Boxes of a shard: which chunks they are in, what is held twice, and how much work finding that out is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltastore.format.dtypes import DTYPES
from deltastore.format.table import SlabRule, TensorSpec, TensorTable
from deltastore.layout import meeting, shard_boxes
from deltastore.layout.cutting import array_of, plain_table, table_of
from deltastore.layout.drawing import Drawing
from deltastore.layout.laid_parts import FlatRun, parts_of
from deltastore.layout.meeting import BoxIndex
from deltastore.layout.parts import intersection
from deltastore.layout.pieces import Layout, Piece
from deltastore.layout.planning import make_plan
from deltastore.layout.shard_boxes import ShardBoxes
from deltastore.layout.trainers.transformers import identity
from tests.layout.counting import Counted

U16 = DTYPES["U16"]


def rows_apart(count: int) -> Layout:
    """Every row of a matrix is a piece, and stands somewhere else."""
    tensor = TensorSpec("rows", (count, 2), U16)
    drawing = Drawing("rows", [tensor])
    param = drawing.param("p", (count, 2), U16)
    for row in range(count):
        drawing.rows(tensor, row * 7 % count, 1, param, row)
    return drawing.done()


def columns_twice(count: int) -> Layout:
    """Every column of a matrix is a piece of two parameters."""
    tensor = TensorSpec("columns", (2, count), U16)
    drawing = Drawing("columns", [tensor])
    for param in ("p", "q"):
        drawing.param(param, (2, count), U16)
        for column in range(count):
            drawing.columns(tensor, column * 7 % count, 1, param, column)
    return drawing.done()


@pytest.mark.parametrize(("made", "most"), [(rows_apart, 1), (columns_twice, 4)])
def test_work_is_linear_in_the_pieces_of_one_tensor(
    monkeypatch: pytest.MonkeyPatch, made: Any, most: int
) -> None:
    """Counted, not timed: every piece is compared with those that it meets, and with no other."""
    counted = Counted(monkeypatch, meeting, "intersection")
    for count in (100, 200):
        layout = made(count)
        pieces = len(layout.pieces)
        counted.calls = 0
        ShardBoxes(plain_table(layout.tensors), layout)
        assert counted.calls <= most * pieces
        counted.calls = 0
        make_plan([identity(layout.tensors)], layout)
        assert counted.calls == pieces
        counted.calls = 0
        params = {param.name: np.zeros(param.shape, np.uint16) for param in layout.params}
        flat = {name: [FlatRun(memory.reshape(-1), 0)] for name, memory in params.items()}
        parts_of(layout, flat)
        assert counted.calls == pieces


def test_what_is_held_twice_is_once_in_the_place_that_is_listed_first() -> None:
    boxes = ShardBoxes(plain_table([TensorSpec("columns", (2, 20), U16)]), columns_twice(20))
    assert len(boxes.every) == 40
    assert {box.piece.param for box in boxes.once} == {"p"}
    assert len(boxes.once) == len(boxes.twice) == 20
    for first, second in boxes.twice:
        assert (first.piece.param, second.piece.param) == ("p", "q")
        assert (first.lo, first.size) == (second.lo, second.size)


@given(st.data())
def test_the_boxes_that_meet_another(data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, 3))
    span = st.tuples(*[st.integers(0, 5)] * rank), st.tuples(*[st.integers(1, 4)] * rank)
    boxes = data.draw(st.lists(st.tuples(*span), max_size=8))
    lo, size = data.draw(st.tuples(*span))
    expected = [
        (number, intersection(start, extent, lo, size)) for number, (start, extent) in enumerate(boxes)
    ]
    assert list(BoxIndex(boxes).meeting(lo, size)) == [one for one in expected if one[1] is not None]


SHAPES = {"scalar": (), "vector": (7,), "matrix": (6, 5), "other": (3, 9), "cube": (3, 4, 5)}


def cut_table(data: st.DataObject) -> TensorTable:
    arrays = []
    for name, shape in SHAPES.items():
        chunk = tuple(data.draw(st.integers(1, length)) for length in shape)
        common = SlabRule(by="common", of=0, count=0)
        arrays.append(array_of(name, TensorSpec(name, shape, U16), ((),), (1, *chunk), common))
    return table_of(arrays, slabs=0)


@given(st.data())
def test_chunks_are_those_of_every_element_and_whole_where_all_are_held(data: st.DataObject) -> None:
    """Against a look at every element, over arrays of every rank at once."""
    table = cut_table(data)
    specs = [TensorSpec(name, shape, U16) for name, shape in SHAPES.items()]
    drawing = Drawing("some", specs)
    held = {}
    for spec in specs:
        held[spec.name] = np.zeros(spec.shape, np.bool_)
        for number in range(data.draw(st.integers(0, 2))):
            lo = tuple(data.draw(st.integers(0, length - 1)) for length in spec.shape)
            size = tuple(
                data.draw(st.integers(1, length - low)) for length, low in zip(spec.shape, lo, strict=True)
            )
            drawing.place(spec, drawing.param(f"{spec.name}{number}", size, U16), lo=lo, size=size)
            held[spec.name][tuple(slice(low, low + n) for low, n in zip(lo, size, strict=True))] = True
    boxes = ShardBoxes(table, drawing.done())
    expected = {}
    for number, array in enumerate(table.arrays):
        for chunk, box in array.grid.boxes():
            inside = tuple(slice(at, at + n) for at, n in zip(box.start[1:], box.size[1:], strict=True))
            if held[array.pattern][inside].any():
                expected[number, chunk] = bool(held[array.pattern][inside].all())
    found = {
        tuple(map(int, place)): bool(all_of) for place, all_of in zip(boxes.chunks, boxes.whole, strict=True)
    }
    assert found == expected
    assert len(boxes.chunks) == len(expected)
    assert boxes.chunks.tolist() == sorted(boxes.chunks.tolist())


def test_arrays_of_one_rank_are_looked_at_together(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch, shard_boxes, "_chunks_of")
    specs = [
        TensorSpec(f"{chr(97 + one)}.{kind}", shape, U16)
        for one in range(26)
        for kind, shape in SHAPES.items()
    ]
    assert len(ShardBoxes(plain_table(specs), identity(specs)).chunks) == len(specs)
    assert counted.calls == len({len(shape) for shape in SHAPES.values()})


@given(st.data())
def test_parts_of_pieces_are_where_the_formula_of_a_piece_says(data: st.DataObject) -> None:
    """``memory[base + sum of i_d * strides_d]``; narrowed to a box of the tensor; clipped."""
    form = (3, 4, 5)
    axes = data.draw(st.sampled_from([(0,), (2,), (1, 2), (2, 1), (2, 0), (0, 1, 2), (2, 0, 1)]))
    at = tuple(data.draw(st.integers(0, length - 1)) for length in form)
    size = tuple(data.draw(st.integers(1, form[axis] - at[axis])) for axis in axes)
    piece = Piece("t", tuple(range(10, 10 + len(axes))), size, "p", at, axes, replica=3)
    memory = np.arange(60).reshape(form)
    view = piece.view_of(memory)
    for index in np.ndindex(*size):
        steps = zip(index, piece.strides(form), strict=True)
        assert view[index] == piece.base(form) + sum(i * step for i, step in steps)
    inner = tuple(data.draw(st.integers(0, length - 1)) for length in size)
    short = tuple(data.draw(st.integers(1, n - low)) for n, low in zip(size, inner, strict=True))
    narrowed = piece.narrowed(tuple(map(int.__add__, piece.lo, inner)), short)
    box = tuple(slice(low, low + n) for low, n in zip(inner, short, strict=True))
    assert (narrowed.view_of(memory) == view[box]).all()
    start = tuple(data.draw(st.integers(0, length - 1)) for length in form)
    extent = tuple(data.draw(st.integers(1, n - low)) for n, low in zip(form, start, strict=True))
    clipped = piece.clipped(start, extent)
    mine = memory[tuple(slice(low, low + n) for low, n in zip(start, extent, strict=True))]
    shared = np.isin(view, mine)
    if clipped is None:
        assert not shared.any()
        return
    low = tuple(map(int.__sub__, clipped.lo, piece.lo))
    box = tuple(slice(first, first + n) for first, n in zip(low, clipped.size, strict=True))
    assert (clipped.view_of(mine) == view[box]).all()
    assert clipped.elements == shared.sum()
    assert (clipped.tensor, clipped.replica) == ("t", 3)
