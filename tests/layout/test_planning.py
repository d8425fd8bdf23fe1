"""Plans: exact, equal wherever they are made, and linear in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltastore.errors import InputError
from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec
from deltastore.layout.drawing import Drawing
from deltastore.layout.parts import intersection
from deltastore.layout.pieces import Layout
from deltastore.layout.planning import check_world, make_plan

BF16 = DTYPES["BF16"]
SHAPE = (12, 6)


def split(tensors: list[TensorSpec], axis: int, count: int, rank: int, *, replica: int = 0) -> Layout:
    """Rank ``rank`` of ``count`` that cut every tensor along one axis, as evenly as it goes."""
    drawing = Drawing(f"{axis}:{rank}/{count}", tensors)
    for tensor in tensors:
        length = tensor.shape[axis]
        low, high = rank * length // count, (rank + 1) * length // count
        lo, size = [0, 0], list(tensor.shape)
        lo[axis], size[axis] = low, high - low
        param = drawing.param(tensor.name, size, BF16)
        drawing.place(tensor, param, lo=lo, size=size, replica=replica)
    return drawing.done()


def ids_of(layout: Layout) -> dict[str, np.ndarray[Any, Any]]:
    """Every parameter, filled with the flat indexes of its tensor's elements."""
    filled = {param.name: np.full(param.form, -1, np.int64) for param in layout.params}
    for piece in layout.pieces:
        shape = layout.specs[piece.tensor].shape
        ids = np.arange(int(np.prod(shape))).reshape(shape)
        inner = tuple(slice(low, low + size) for low, size in zip(piece.lo, piece.size, strict=True))
        filled[piece.param][tuple(slice(a, a + n) for a, n in zip(piece.at, piece.extent, strict=True))] = (
            ids[inner]
        )
    return filled


def carry_out(sources: list[Layout], target: Layout) -> dict[str, np.ndarray[Any, Any]]:
    memories = [ids_of(source) for source in sources]
    taken = {param.name: np.full(param.form, -1, np.int64) for param in target.params}
    for copy in make_plan(sources, target).copies:
        given, wanted = sources[copy.source].pieces[copy.given], target.pieces[copy.taken]
        ends = []
        for piece in (given, wanted):
            at = [a + low - first for a, low, first in zip(piece.at, copy.lo, piece.lo, strict=True)]
            ends.append(tuple(slice(a, a + n) for a, n in zip(at, copy.size, strict=True)))
        part = taken[wanted.param][ends[1]]
        assert (part == -1).all()
        taken[wanted.param][ends[1]] = memories[copy.source][given.param][ends[0]]
    return taken


@given(st.integers(0, 1), st.integers(1, 7), st.integers(0, 1), st.integers(1, 7), st.data())
def test_any_cut_to_any_other(
    axis: int, count: int, to_axis: int, to_count: int, data: st.DataObject
) -> None:
    tensors = [TensorSpec(f"layers.{number}.w", SHAPE, BF16) for number in range(2)]
    sources = [split(tensors, axis, count, rank) for rank in range(count)]
    check_world(sources)
    target = split(tensors, to_axis, to_count, data.draw(st.integers(0, to_count - 1)))
    wanted = ids_of(target)
    assert {name: ids.tolist() for name, ids in carry_out(sources, target).items()} == {
        name: ids.tolist() for name, ids in wanted.items()
    }


def test_replicas_give_nothing() -> None:
    tensors = [TensorSpec("w", SHAPE, BF16)]
    sources = [split(tensors, 0, 1, 0, replica=number) for number in range(3)]
    check_world(sources)
    plan = make_plan(sources, split(tensors, 0, 2, 1))
    assert [copy.source for copy in plan.copies] == [0]
    with pytest.raises(
        InputError, match=r"elements \[0:12, 0:6\] of tensor 'w' are given by nobody"
    ) as caught:
        check_world(sources[1:])
    assert caught.value.code == "bad_layout"
    with pytest.raises(InputError, match="given by both 0:0/1 and 0:0/1"):
        check_world([sources[0], sources[0]])


def test_a_plan_that_lacks_something_names_it() -> None:
    tensors = [TensorSpec("w", SHAPE, BF16)]
    sources = [split(tensors, 0, 3, rank) for rank in (0, 2)]
    with pytest.raises(InputError, match=r"elements \[6:8, 0:6\] of tensor 'w' are given by nobody"):
        make_plan(sources, split(tensors, 0, 2, 1))
    with pytest.raises(
        InputError, match=r"elements \[8:12, 0:6\] of tensor 'w' are given by both 0:2/3 and 0:2/3"
    ):
        make_plan([split(tensors, 0, 3, 1), *sources, sources[1]], split(tensors, 0, 2, 1))


def test_work_is_linear_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: twice the tensors are twice the intersections."""
    real = intersection
    counts = []
    for tensors in (50, 100):
        calls = 0

        def counted(*boxes: Any) -> Any:
            nonlocal calls
            calls += 1
            return real(*boxes)

        specs = [TensorSpec(f"layers.{number}.w", SHAPE, BF16) for number in range(tensors)]
        with monkeypatch.context() as patched:
            patched.setattr("deltastore.layout.meeting.intersection", counted)
            make_plan([split(specs, 0, 4, rank) for rank in range(4)], split(specs, 0, 2, 1))
        counts.append(calls)
    assert counts == [50 * 2, 100 * 2]
