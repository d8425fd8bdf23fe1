"""Whether a layout is sound (SPEC section "Layouts"): looked at once, before anything follows from it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from deltastore.errors import InputError
from deltastore.format.table import TensorSpec
from deltastore.layout.boxes import ends_of, first_flaw, is_inside
from deltastore.layout.pieces import Hole, Layout, Param, Piece

__all__ = ["check_layout"]

_CHECKED: Final = "_checked"


def check_layout(layout: Layout) -> None:
    """Whether every element of every parameter is fed by one element of one tensor, or named as a hole.

    A layout that has been found sound is not looked at again. Raises ``InputError("bad_layout")``: a name
    given twice, a piece outside its tensor or parameter, of another element type, a hole that is not named,
    two pieces in one place, a tie to nothing.
    """
    if _CHECKED not in vars(layout):
        _check(layout)
        vars(layout)[_CHECKED] = True


def _check(layout: Layout) -> None:
    _check_once(layout, "parameter", [param.name for param in layout.params])
    _check_once(layout, "tensor", [tensor.name for tensor in layout.tensors])
    for piece in layout.pieces:
        _check_piece(layout, piece)
    holes: dict[str, list[Hole]] = {}
    for hole in layout.holes:
        holes.setdefault(hole.param, []).append(hole)
        param = layout.forms.get(hole.param)
        if param is None or not is_inside(hole.at, hole.size, param.form):
            raise _bad(layout, hole.param, f"a hole of {list(hole.size)} from {list(hole.at)} is outside it")
    for param in layout.params:
        _check_param(layout, param, holes.get(param.name, ()))
    for name, to in layout.ties.items():
        if to not in layout.forms or name in layout.forms:
            raise _bad(layout, name, f"it is tied to {to!r}, which is no other parameter")
    for name, to in layout.aliases.items():
        if to not in layout.specs or name in layout.specs:
            raise _bad(layout, name, f"it stands for tensor {to!r}, which is no other tensor of the model")


def _check_once(layout: Layout, kind: str, names: Sequence[str]) -> None:
    if len(set(names)) == len(names):
        return
    double = Counter(names).most_common(1)[0][0]
    message = f"layout {layout.name}: {kind} {double!r} is there twice; name it once"
    raise InputError("bad_layout", message, where=double, rule="DS111")


def _check_piece(layout: Layout, piece: Piece) -> None:
    tensor, param = layout.specs.get(piece.tensor), layout.forms.get(piece.param)
    if tensor is None or param is None:
        missing = f"tensor {piece.tensor!r}" if tensor is None else f"parameter {piece.param!r}"
        raise _bad(layout, piece.param, f"a piece names {missing}, which there is not")
    problem = _problem_of(piece, tensor, param)
    if problem is not None:
        raise _bad(layout, piece.param, problem)


def _problem_of(piece: Piece, tensor: TensorSpec, param: Param) -> str | None:
    of = f"tensor {tensor.name!r}"
    axes, rank = set(piece.axes), len(param.form)
    if not len(axes) == len(piece.axes) == len(tensor.shape) or not axes.issubset(range(rank)):
        return f"{of}: axes {list(piece.axes)} are not {len(tensor.shape)} different axes of a form of {rank}"
    if not is_inside(piece.lo, piece.size, tensor.shape):
        return f"a piece of {list(piece.size)} from {list(piece.lo)} is not in {of} of {list(tensor.shape)}"
    if len(piece.at) != rank or not is_inside(piece.at, piece.extent, param.form):
        return (
            f"{list(piece.size)} elements of {of} from {list(piece.at)} along axes {list(piece.axes)} do not "
            f"fit into its shape {list(param.form)}"
        )
    if tensor.dtype != param.dtype and (tensor.dtype.name, param.dtype.name) != ("BF16", "F32"):
        return f"it is {param.dtype.name} where {of} is {tensor.dtype.name}"
    return None


def _check_param(layout: Layout, param: Param, holes: Sequence[Hole]) -> None:
    if param.view is not None and math.prod(param.view) != param.elements:
        raise _bad(layout, param.name, f"shape {list(param.shape)} cannot be seen as {list(param.view)}")
    claims = [
        (piece.at, ends_of(piece.at, piece.extent), f"tensor {piece.tensor!r}")
        for piece in layout.of_param.get(param.name, ())
    ]
    claims += [(hole.at, ends_of(hole.at, hole.size), "padding") for hole in holes]
    flaw = first_flaw(param.form, claims)
    if flaw is None:
        return
    box = ", ".join(f"{low}:{high}" for low, high in flaw.where)
    problem = f"fed by both {flaw.owners[0]} and {flaw.owners[1]}" if flaw.owners else "fed by no tensor"
    raise _bad(layout, param.name, f"its elements [{box}] of {list(param.form)} are {problem}", "DS110")


def _bad(layout: Layout, param: str, problem: str, rule: str = "DS111") -> InputError:
    message = f"layout {layout.name}, parameter {param!r}: {problem}"
    return InputError("bad_layout", message, where=param, rule=rule)
