"""Layouts that are sound, and every way in which one is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltastore.errors import InputError
from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec
from deltastore.layout.checking import check_layout
from deltastore.layout.drawing import Drawing
from deltastore.layout.pieces import Hole, Layout, Param, Piece

BF16, F32, F16 = DTYPES["BF16"], DTYPES["F32"], DTYPES["F16"]
GATE = TensorSpec("gate", (6, 4), BF16)
UP = TensorSpec("up", (6, 4), BF16)


def filled(layout: Layout, name: str) -> np.ndarray[Any, Any]:
    """A parameter in which every element says which tensor and element it is of; -1 in holes."""
    param = layout.param(name)
    memory = np.full(param.elements, -1, np.int64)
    first = np.cumsum([0, *(spec.elements for spec in layout.tensors)])
    for piece in layout.of_param[param.name]:
        number = [spec.name for spec in layout.tensors].index(piece.tensor)
        ids = np.arange(layout.tensors[number].elements).reshape(layout.tensors[number].shape) + first[number]
        base, strides = piece.base(param.form), piece.strides(param.form)
        for index in np.ndindex(piece.size):
            at = base + sum(i * stride for i, stride in zip(index, strides, strict=True))
            assert memory[at] == -1
            memory[at] = ids[tuple(low + i for low, i in zip(piece.lo, index, strict=True))]
    return memory.reshape(param.form)


def test_a_fused_padded_transposed_parameter() -> None:
    drawing = Drawing("fused", [GATE, UP])
    fused = drawing.param("fused", (2, 4, 3), BF16)
    drawing.place(GATE, fused, lo=(2, 0), size=(2, 4), at=(0, 0, 0), axes=(0, 1))
    drawing.place(UP, fused, lo=(1, 0), size=(2, 4), at=(0, 0, 1), axes=(2, 1))
    drawing.hole(fused, (1, 0, 1), (1, 4, 2))
    ids = filled(drawing.done(), "fused")
    assert ids[:, :, 0].tolist() == [[8, 9, 10, 11], [12, 13, 14, 15]]
    assert ids[0, :, 1].tolist() == [28, 29, 30, 31]
    assert ids[0, :, 2].tolist() == [32, 33, 34, 35]
    assert (ids[1, :, 1:] == -1).all()


def test_a_parameter_that_is_seen_in_another_shape() -> None:
    drawing = Drawing("view", [GATE, UP])
    param = drawing.param("both", (4, 12), BF16, view=(2, 4, 6))
    for number, tensor in enumerate((GATE, UP)):
        drawing.place(tensor, param, at=(number, 0, 0), axes=(2, 1))
    ids = filled(drawing.done(), "both")
    assert (ids[0] == np.arange(24).reshape(6, 4).T).all()
    assert (ids[1] == 24 + np.arange(24).reshape(6, 4).T).all()


def test_rows_columns_whole_and_ties() -> None:
    drawing = Drawing("rows", [GATE, UP])
    fused = drawing.param("fused", (4, 4), BF16)
    drawing.rows(GATE, 3, 2, fused, 0)
    drawing.rows(UP, 3, 2, fused, 2)
    column = drawing.param("column", (6, 1), BF16)
    drawing.columns(UP, 2, 1, column)
    drawing.whole(GATE, dtype=F32)
    drawing.tie("head", "gate")
    layout = drawing.done()
    assert filled(layout, "fused").tolist() == [
        [12, 13, 14, 15],
        [16, 17, 18, 19],
        [36, 37, 38, 39],
        [40, 41, 42, 43],
    ]
    assert filled(layout, "column").ravel().tolist() == [26, 30, 34, 38, 42, 46]
    assert filled(layout, "head").tolist() == filled(layout, "gate").tolist()
    assert layout.param("head") == Param("gate", (6, 4), F32)
    assert layout.elements == 16 + 6 + 24


def layout_of(*pieces: Piece, params: Any = None, holes: tuple[Hole, ...] = (), **more: Any) -> Layout:
    params = params or (Param("p", (6, 4), BF16),)
    return Layout("bad", (GATE, UP), params, pieces, holes, **more)


WHOLE = Piece("gate", (0, 0), (6, 4), "p", (0, 0), (0, 1))


@pytest.mark.spec("DS110", "DS111")
@pytest.mark.parametrize(
    ("layout", "names", "says"),
    [
        (layout_of(), "p", r"its elements \[0:6, 0:4\] of \[6, 4\] are fed by no tensor"),
        (
            layout_of(Piece("gate", (0, 0), (5, 4), "p", (0, 0), (0, 1))),
            "p",
            r"its elements \[5:6, 0:4\] of \[6, 4\] are fed by no tensor",
        ),
        (
            layout_of(WHOLE, Piece("up", (2, 1), (1, 2), "p", (3, 2), (0, 1))),
            "p",
            r"its elements \[3:4, 2:4\] of \[6, 4\] are fed by both tensor 'gate' and tensor 'up'",
        ),
        (layout_of(WHOLE, holes=(Hole("p", (0, 3), (1, 1)),)), "p", "fed by both tensor 'gate' and padding"),
        (layout_of(WHOLE, holes=(Hole("p", (0, 4), (1, 1)),)), "p", "a hole of .* is outside it"),
        (layout_of(WHOLE, holes=(Hole("q", (0, 0), (1, 1)),)), "q", "a hole of .* is outside it"),
        (layout_of(Piece("gone", (0, 0), (6, 4), "p", (0, 0), (0, 1))), "p", "names tensor 'gone'"),
        (layout_of(WHOLE, Piece("up", (0, 0), (6, 4), "q", (0, 0), (0, 1))), "q", "names parameter 'q'"),
        (layout_of(Piece("gate", (1, 0), (6, 4), "p", (0, 0), (0, 1))), "p", "is not in tensor 'gate'"),
        (layout_of(Piece("gate", (-1, 0), (6, 4), "p", (0, 0), (0, 1))), "p", "is not in tensor 'gate'"),
        (layout_of(Piece("gate", (0,), (6,), "p", (0, 0), (0,))), "p", r"axes \[0\] are not 2 different"),
        (layout_of(Piece("gate", (0, 0), (6, 4), "p", (0, 0), (0, 0))), "p", r"axes \[0, 0\] are not 2"),
        (layout_of(Piece("gate", (0, 0), (6, 4), "p", (0, 0), (0, 2))), "p", r"\[0, 2\] .* a form of 2$"),
        (layout_of(Piece("gate", (0, 0), (6, 4), "p", (0,), (0, 1))), "p", "do not fit into its shape"),
        (layout_of(Piece("gate", (0, 0), (6,), "p", (0, 0), (0, 1))), "p", "is not in tensor 'gate'"),
        (
            layout_of(Piece("gate", (0, 0), (6, 4), "p", (0, 1), (0, 1))),
            "p",
            r"do not fit into its shape \[6, 4\]",
        ),
        (
            layout_of(Piece("gate", (0, 0), (6, 4), "p", (0, 0), (1, 0))),
            "p",
            r"do not fit into its shape \[6, 4\]",
        ),
        (layout_of(WHOLE, params=(Param("p", (6, 4), F16),)), "p", "it is F16 where tensor 'gate' is BF16"),
        (
            layout_of(WHOLE, params=(Param("p", (4, 5), BF16, (6, 4)),)),
            "p",
            r"shape \[4, 5\] cannot be seen as",
        ),
        (layout_of(WHOLE, ties={"head": "gone"}), "head", "it is tied to 'gone'"),
        (layout_of(WHOLE, ties={"p": "p"}), "p", "it is tied to 'p'"),
        (layout_of(WHOLE, aliases={"head": "gone"}), "head", "it stands for tensor 'gone'"),
        (layout_of(WHOLE, aliases={"up": "gate"}), "up", "it stands for tensor 'gate'"),
    ],
)
def test_what_is_no_layout(layout: Layout, names: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        check_layout(layout)
    assert caught.value.code == "bad_layout"
    assert caught.value.where == names
    assert f"parameter {names!r}" in str(caught.value)


def test_a_parameter_drawn_twice_and_one_that_is_not_there() -> None:
    drawing = Drawing("twice", [GATE])
    drawing.whole(GATE)
    with pytest.raises(InputError, match="'gate' is drawn twice"):
        drawing.param("gate", (1,), BF16)
    with pytest.raises(InputError, match="no parameter 'gone'") as caught:
        drawing.done().param("gone")
    assert caught.value.code == "unknown_tensor"


def test_a_tensor_placed_where_nothing_is_drawn() -> None:
    with pytest.raises(
        InputError, match="parameter 'gone' is to hold tensor 'gate' and is not drawn"
    ) as caught:
        Drawing("placed", [GATE]).place(GATE, "gone")
    assert caught.value.code == "bad_layout"


@pytest.mark.parametrize(
    ("params", "tensors", "says"),
    [
        ((Param("p", (6, 4), BF16),) * 2, (GATE,), "parameter 'p'"),
        ((Param("p", (6, 4), BF16),), (GATE,) * 2, "tensor 'gate'"),
    ],
)
def test_a_name_that_is_there_twice(params: Any, tensors: Any, says: str) -> None:
    with pytest.raises(InputError, match=f"{says} is there twice") as caught:
        check_layout(Layout("double", tensors, params, (WHOLE,)))
    assert caught.value.code == "bad_layout"


def test_empty_tensors_and_scalars() -> None:
    nothing, scalar = TensorSpec("nothing", (0, 4), BF16), TensorSpec("scalar", (), F32)
    drawing = Drawing("small", [nothing, scalar])
    drawing.whole(nothing)
    drawing.whole(scalar)
    layout = drawing.done()
    assert [piece.tensor for piece in layout.pieces] == ["scalar"]
    assert filled(layout, "scalar") == 0


@given(st.data())
def test_cuts_of_a_tensor_anywhere_in_a_parameter(data: st.DataObject) -> None:
    """A grid of cuts of one tensor, each in a place of its own: every element once, in the right place."""
    rows, columns = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    tensor = TensorSpec("t", (rows, columns), BF16)
    cut = data.draw(st.integers(0, rows))
    transposed = data.draw(st.booleans())
    drawing = Drawing("cuts", [tensor])
    shape = (columns, rows) if transposed else (rows, columns)
    param = drawing.param("p", shape, BF16)
    axes = (1, 0) if transposed else (0, 1)
    low = (0, rows - cut) if transposed else (rows - cut, 0)
    drawing.place(tensor, param, size=(cut, columns), at=low, axes=axes)
    drawing.place(tensor, param, lo=(cut, 0), at=(0, 0), axes=axes)
    ids = filled(drawing.done(), "p")
    expected = np.roll(np.arange(rows * columns).reshape(rows, columns), rows - cut, axis=0)
    assert (ids == (expected.T if transposed else expected)).all()


def test_boxes_that_cut_each_other_along_many_axes_are_given_up() -> None:
    """Slices along every axis, all of which meet: to sweep them would take a power of their number."""
    axes, many = 8, 8
    tensor = TensorSpec("t", (many,) * axes, BF16)
    drawing = Drawing("knot", [tensor])
    drawing.param("p", tensor.shape, BF16)
    for axis in range(axes):
        for at in range(many):
            lo, size = [0] * axes, [many] * axes
            lo[axis], size[axis] = at, 1
            drawing.place(tensor, "p", lo=lo, size=size, at=lo)
    with pytest.raises(InputError, match=r"too many axes|fed by both"):
        drawing.done()
