"""From parameters as a trainer has them to parts of tensors: views of the same memory.

What is fused, stacked, transposed, padded or cut in a parameter is so in its layout; here each piece becomes
a view that has the tensor's own axes. Nothing is copied.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from deltastore.errors import InputError
from deltastore.layout.casting import stands_for
from deltastore.layout.checking import check_layout
from deltastore.layout.meeting import BoxIndex
from deltastore.layout.memory import check_named, element_type, is_torch, place_of
from deltastore.layout.parts import Part, flat_boxes, is_contiguous
from deltastore.layout.pieces import Axes, Layout, Param
from deltastore.layout.sharded import is_sharded, part_of_sharded

__all__ = ["FlatRun", "Params", "parts_of", "watched"]

Params = Mapping[str, Any]
"""Parameter name -> all of it, a ``Part`` or ``FlatRun`` of it, a sequence of those, or a ``DTensor``."""


@dataclass(frozen=True, slots=True, eq=False)
class FlatRun:
    """A one-dimensional run of a parameter's elements, row-major from index ``first`` on.

    This is what the buffer of a distributed optimizer holds of a parameter. ``tensor``: one axis, contiguous.
    """

    tensor: Any
    first: int


def parts_of(layout: Layout, params: Params, *, cast: bool = False) -> dict[str, list[Part]]:
    """What this process is to publish: parts of tensors, each a view of the memory of ``params``.

    ``params`` has all parameters of ``layout``, an empty sequence for one of which nothing is held here; a
    name that is tied to another's may be left out. ``cast``: F32 may stand for BF16 or F16. Only pieces of
    replica 0 become parts.

    Raises ``InputError``: ``bad_layout`` for one that is not sound; naming the parameter and the numbers,
    ``missing_tensor``, ``unknown_tensor``, ``wrong_shape``, ``wrong_dtype``; ``wrong_memory`` where one that
    is seen in another shape, or is a run, is not contiguous; ``bad_argument``.
    """
    check_layout(layout)
    check_named(params)
    given = _untied(layout, params)
    parts: dict[str, list[Part]] = {}
    for param in layout.params:
        if param.name not in given:
            raise InputError(
                "missing_tensor",
                f"parameter {param.name!r} of layout {layout.name} is not given: {len(given)} of "
                f"{len(layout.params)} are there; give all, () for what this process holds nothing of",
                where=param.name,
            )
        pieces = [piece for piece in layout.of_param.get(param.name, ()) if piece.replica == 0]
        index = BoxIndex([(piece.at, piece.extent) for piece in pieces])
        for box in _boxes(param, given[param.name], cast):
            size = tuple(box.tensor.shape)
            for number, _ in index.meeting(box.start, size):
                piece = pieces[number].clipped(box.start, size)
                if piece is not None:
                    with _unrecorded(box.tensor):
                        view = piece.view_of(box.tensor)
                    part = Part(view, layout.specs[piece.tensor].shape, piece.lo)
                    parts.setdefault(piece.tensor, []).append(part)
    return parts


def watched(params: Params) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Name of each torch parameter, and what gives its memory as it is now: to see that it stays there."""
    for name, given in params.items():
        for one in given if isinstance(given, list | tuple) else [given]:
            tensor = one.tensor if isinstance(one, Part | FlatRun) else one
            if is_sharded(tensor):
                yield name, tensor.to_local
            elif is_torch(tensor):
                yield name, partial(_itself, tensor)


def _itself(tensor: Any) -> Any:
    return tensor


def _untied(layout: Layout, params: Params) -> dict[str, Any]:
    """``params`` by the names that the layout has; a tied name must be the memory of the other."""
    for name in params:
        layout.param(name)  # says so when there is none
    given = {name: value for name, value in params.items() if name in layout.forms}
    for name, to in layout.ties.items():
        if name in params and to in given and not _is_same(params[name], given[to]):
            raise InputError(
                "wrong_memory",
                f"parameter {name!r} is not the memory of {to!r}, to which it is tied in layout "
                f"{layout.name}: tie them, or say in the configuration that they are not",
                where=name,
            )
        if name in params:
            given.setdefault(to, params[name])
    return given


def _is_same(first: Any, second: Any) -> bool:
    if first is second or not is_torch(first) or not is_torch(second):
        return first is second or (not is_torch(first) and _numpy_place(first) == _numpy_place(second))
    if is_sharded(first):
        first = first.to_local()
    if is_sharded(second):
        second = second.to_local()
    return place_of(first) == place_of(second)


def _numpy_place(array: Any) -> object:
    place = getattr(array, "__array_interface__", None)
    return object() if place is None else (place["data"], place["shape"], place["strides"])


@dataclass(frozen=True, slots=True, eq=False)
class _Box:
    """A live tensor that is the box at ``start`` of a parameter's form."""

    tensor: Any
    start: Axes


def _boxes(param: Param, given: Any, cast: bool) -> Iterator[_Box]:
    for one in _each(param, given):
        tensor = one.tensor
        _check_dtype(param, tensor, cast)
        if isinstance(one, FlatRun):
            yield from _run(param, tensor, one.first)
        elif one.shape != param.shape:
            raise _misshapen(param, one.shape, "a part of one of shape ")
        elif param.view is None:
            yield _Box(tensor, one.start)
        elif math.prod(tensor.shape):
            yield from _run(param, *_as_run(param, one))


def _each(param: Param, given: Any) -> list[Part | FlatRun]:
    found: list[Part | FlatRun] = []
    for one in given if isinstance(given, list | tuple) else [given]:
        if isinstance(one, Part | FlatRun):
            found.append(one)
        elif one is given and is_sharded(one):
            with _unrecorded(one):
                found += part_of_sharded(param.name, one)
        elif one is given:
            element_type(param.name, one)  # says so when it is no tensor at all
            if tuple(one.shape) != param.shape:
                raise _misshapen(param, tuple(one.shape))
            found.append(Part(one, param.shape, (0,) * len(param.shape)))
        else:
            raise InputError(
                "bad_argument",
                f"parameter {param.name!r}: give a tensor, or a sequence of Part or FlatRun",
                where=param.name,
            )
    return found


def _misshapen(param: Param, shape: Axes, of: str = "") -> InputError:
    return InputError(
        "wrong_shape",
        f"parameter {param.name!r} is {of}{list(shape)} where its layout has {list(param.shape)}",
        where=param.name,
    )


def _check_dtype(param: Param, tensor: Any, cast: bool) -> None:
    given = element_type(param.name, tensor)
    if given != param.dtype and not stands_for(given, param.dtype, cast):
        raise InputError(
            "wrong_dtype",
            f"parameter {param.name!r} is {given.name} where its layout has {param.dtype.name}; "
            "cast it (cast=True does, from F32)",
            where=param.name,
        )


def _as_run(param: Param, part: Part) -> tuple[Any, int]:
    """Whole rows of a parameter that is seen in another shape."""
    tensor, inner = part.tensor, param.shape[1:]
    if tuple(tensor.shape[1:]) != inner or not is_contiguous(tensor):
        raise InputError(
            "wrong_memory",
            f"parameter {param.name!r} of shape {list(param.shape)} is seen as {list(param.form)}: its "
            f"{list(tensor.shape)} elements must be whole rows, contiguous in memory",
            where=param.name,
        )
    with _unrecorded(tensor):
        return tensor.reshape(-1), part.start[0] * math.prod(inner)


def _run(param: Param, tensor: Any, first: int) -> Iterator[_Box]:
    if len(tensor.shape) != 1 or not 0 <= first <= first + tensor.shape[0] <= param.elements:
        raise InputError(
            "wrong_shape",
            f"parameter {param.name!r} of shape {list(param.shape)} has no run of {list(tensor.shape)} "
            f"elements from index {first}",
            where=param.name,
        )
    if not is_contiguous(tensor):
        raise InputError(
            "wrong_memory", f"parameter {param.name!r}: a run must be contiguous in memory", where=param.name
        )
    at = 0
    for start, size in flat_boxes(param.form, first, tensor.shape[0]):
        count = math.prod(size)
        with _unrecorded(tensor):
            box = tensor[at : at + count].reshape(size)
        yield _Box(box, start)
        at += count


def _unrecorded(tensor: Any) -> AbstractContextManager[Any]:
    """Views of a torch parameter are no part of what is differentiated."""
    if not is_torch(tensor):
        return nullcontext()
    context: AbstractContextManager[Any] = sys.modules["torch"].no_grad()
    return context
