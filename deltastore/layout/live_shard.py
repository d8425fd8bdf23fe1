"""A live shard: the parameters that one engine process holds, seen through a layout and the table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from deltastore.errors import InputError
from deltastore.format.table import TensorTable
from deltastore.kernels.grid import Box
from deltastore.kernels.pieces import Piece, Pieces
from deltastore.layout.casting import stands_for
from deltastore.layout.device import host_copy, is_on_device, shadow_of
from deltastore.layout.meeting import BoxIndex
from deltastore.layout.memory import (
    LiveTensors,
    bits_of,
    check_named,
    element_type,
    is_torch,
    place_of,
    same_memory,
)
from deltastore.layout.parts import intersection, slices_at
from deltastore.layout.pieces import Layout, Param
from deltastore.layout.shard_boxes import HeldBox, ShardBoxes

__all__ = ["LiveShard"]

Bits = np.ndarray[Any, Any]

_NOTHING: Final = BoxIndex([])

_SLICE_ELEMENTS: Final = 1 << 20

_HALVES: Final = np.dtype([("low", "<u2"), ("high", "<u2")])


class LiveShard:
    """Live parameters by name, read and written in place where ``layout`` says that elements stand.

    An F32 parameter that holds BF16 tensors is seen as the upper halves of its elements; the lower ones are
    to be zero. Raises ``InputError`` naming the first tensor that table and layout do not agree on (see
    ``ShardBoxes``), or the first parameter that does not fit: ``missing_tensor``, ``unknown_tensor``,
    ``wrong_shape``, ``wrong_dtype``, ``wrong_memory``.
    """

    def __init__(self, table: TensorTable, layout: Layout, params: LiveTensors) -> None:
        check_named(params)
        self.boxes = ShardBoxes(table, layout)
        self._table = table
        self._layout = layout
        views = {param.name: _view_of(layout, param, params) for param in layout.params}
        _check_names(layout, params, views)
        self.named = [(name, shadow_of(view)) for name, view in views.items()]
        forms = {param.name: _in_form(param, views[param.name]) for param in layout.params}
        self._forms = forms
        self._places = [
            (param.name, params[param.name], place_of(params[param.name]))
            for param in layout.params
            if is_torch(params[param.name])
        ]

    @property
    def table(self) -> TensorTable:
        """The stream's table."""
        return self._table

    @property
    def tied(self) -> list[list[tuple[int, int]]]:
        """(array, member) places of tensors that are one memory here, in groups of two or more."""
        return self.boxes.tied

    @property
    def elements(self) -> int:
        """Elements held, each in all of its places."""
        return self._layout.elements

    @property
    def nbytes(self) -> int:
        """Bytes of all parameters."""
        return self._layout.nbytes

    @cached_property
    def pieces(self) -> Pieces | None:
        """Every place of every element held; None where one is not in the memory of the CPU."""
        return None if any(map(is_on_device, self._forms.values())) else self._made(self.boxes.every)

    @cached_property
    def device_pieces(self) -> Pieces | None:
        """Every place of every element held; None unless all are on one GPU."""
        forms = list(self._forms.values())
        devices = {str(form.device) for form in forms if is_on_device(form)}
        alone = len(devices) == 1 and all(map(is_on_device, forms))
        return self._made(self.boxes.every) if alone else None

    @cached_property
    def once(self) -> Pieces:
        """One place of every element held: what digests are of."""
        if not self.boxes.twice:
            pieces = self.pieces if self.pieces is not None else self.device_pieces
            if pieces is not None:
                return pieces
        return self._made(self.boxes.once)

    def _made(self, boxes: Iterable[HeldBox]) -> Pieces:
        pieces = (Piece(box.array, box.member, box.lo, self._view(box)) for box in boxes)
        return Pieces(self._table.kernels, pieces)

    def _view(self, box: HeldBox) -> Any:
        """The bits of a box, in the order of the tensor's axes."""
        view = self._box_of_param(box)
        return _half(view, "high") if self._is_widened(box) else view

    def _box_of_param(self, box: HeldBox) -> Any:
        return box.piece.narrowed(box.lo, box.size).view_of(self._forms[box.piece.param])

    def _is_widened(self, box: HeldBox) -> bool:
        param = self._layout.forms[box.piece.param]
        return param.dtype.itemsize != self._table.arrays[box.array].element.itemsize

    @cached_property
    def _halves(self) -> list[tuple[str, Any]]:
        """Parameters that hold elements widened, and the lower halves of these."""
        return [
            (box.piece.param, _half(self._box_of_param(box), "low"))
            for box in self.boxes.every
            if self._is_widened(box)
        ]

    @cached_property
    def _copies(self) -> dict[tuple[int, int], list[tuple[HeldBox, HeldBox]]]:
        """(array, member) -> pairs of boxes that are copies of each other."""
        found: dict[tuple[int, int], list[tuple[HeldBox, HeldBox]]] = {}
        for first, second in self.boxes.twice:
            found.setdefault((first.array, first.member), []).append((first, second))
        return found

    def clear_halves(self) -> None:
        """Make the lower half of every widened element zero, as widening does."""
        for _, view in self._halves:
            view[...] = 0

    def astray(self) -> Iterator[str]:
        """Parameters with elements that no digest looks at and that are wrong.

        Those are lower halves that are set, and copies that differ. A name may come several times.
        """
        for name, view in self._halves:
            if any(bool((part != 0).any()) for (part,) in _in_slices(view)):
                yield name
        for pairs in self._copies.values():
            for first, second in pairs:
                if _differ(self._view(first), self._view(second)):
                    yield second.piece.param

    def copies_apart(self, array: int, box: Box) -> Iterator[str]:
        """Parameters with copies of elements in a box of ``array`` that differ from what stands elsewhere."""
        for member in range(box.start[0], box.start[0] + box.size[0]):
            for pair in self._copies.get((array, member), ()):
                shared = intersection(pair[0].lo, pair[0].size, box.start[1:], box.size[1:])
                if shared is not None:
                    first, second = (self._view(replace(one, lo=shared[0], size=shared[1])) for one in pair)
                    if _differ(first, second):
                        yield pair[1].piece.param

    def params_apart(self, array: int, box: Box, bits: Bits) -> Iterator[str]:
        """Parameters that hold elements of a box of ``array`` with other bits than ``bits``, in its shape."""
        for offset in range(box.size[0]):
            boxes, index = self._of.get((array, box.start[0] + offset), ((), _NOTHING))
            for number, (lo, size) in index.meeting(box.start[1:], box.size[1:]):
                live = self._view(replace(boxes[number], lo=lo, size=size))
                place: Any = (offset, *slices_at(lo, size, box.start[1:]), ...)
                if not np.array_equal(host_copy(live) if is_on_device(live) else live, bits[place]):
                    yield boxes[number].piece.param

    @cached_property
    def _of(self) -> dict[tuple[int, int], tuple[list[HeldBox], BoxIndex]]:
        """(array, member) -> its boxes, and which of them meet another."""
        found: dict[tuple[int, int], list[HeldBox]] = {}
        for box in self.boxes.every:
            found.setdefault((box.array, box.member), []).append(box)
        return {
            place: (boxes, BoxIndex([(box.lo, box.size) for box in boxes])) for place, boxes in found.items()
        }

    def check_in_place(self) -> None:
        """``InputError("wrong_memory")`` when the memory of a torch parameter has been replaced meanwhile."""
        for name, param, place in self._places:
            if place_of(param) != place:
                raise InputError(
                    "wrong_memory",
                    f"parameter {name!r} has got other memory since it was given: open a new reader",
                    where=name,
                )


def _view_of(layout: Layout, param: Param, params: LiveTensors) -> Any:
    """A parameter's bits, once name, shape and type are those of the layout."""
    name = param.name
    if name not in params:
        raise InputError(
            "missing_tensor",
            f"parameter {name!r} of layout {layout.name} is not given: give all of its {len(layout.params)}",
            where=name,
        )
    given = params[name]
    dtype = element_type(name, given)
    shape = tuple(given.shape)
    if shape != param.shape:
        hint = (
            "; another number of axes is how a kernel's private layout looks, which nothing can write into"
            if len(shape) != len(param.shape)
            else ""
        )
        raise InputError(
            "wrong_shape",
            f"parameter {name!r} has shape {list(shape)} where layout {layout.name} has "
            f"{list(param.shape)}{hint}",
            where=name,
        )
    if dtype != param.dtype and not stands_for(dtype, param.dtype, False):
        raise InputError(
            "wrong_dtype",
            f"parameter {name!r} is {dtype.name} where layout {layout.name} has {param.dtype.name}",
            where=name,
        )
    view = bits_of(name, given)
    if not shadow_of(view).flags.writeable:
        raise InputError(
            "wrong_memory", f"parameter {name!r} is read-only: give one that can change", where=name
        )
    return view


def _check_names(layout: Layout, params: LiveTensors, views: Mapping[str, Any]) -> None:
    """Every name given is a parameter's, or that of a tie that is the same memory."""
    for name, given in params.items():
        if name in views:
            continue
        other = layout.param(name).name
        if not same_memory(bits_of(name, given), views[other]):
            raise InputError(
                "wrong_memory",
                f"parameter {name!r} is memory of its own where layout {layout.name} ties it to {other!r}",
                where=name,
            )


def _in_form(param: Param, view: Any) -> Any:
    """The bits in the shape that pieces are boxes of."""
    if param.view is None:
        return view
    if not shadow_of(view).flags.c_contiguous:
        raise InputError(
            "wrong_memory",
            f"parameter {param.name!r} is not contiguous, and its layout sees its {list(param.shape)} as "
            f"{list(param.view)}: give contiguous memory",
            where=param.name,
        )
    return view.reshape(param.view)


def _differ(first: Any, second: Any) -> bool:
    return any(bool((one != other).any()) for one, other in _in_slices(first, second))


def _in_slices(*views: Any) -> Iterator[tuple[Any, ...]]:
    """The same parts of views of one shape, of few elements each: what is made of them stays small."""
    shape = tuple(views[0].shape)
    if not shape or 0 in shape:
        yield views
        return
    step = max(_SLICE_ELEMENTS * shape[0] // math.prod(shape), 1)
    for start in range(0, shape[0], step):
        yield tuple(view[start : start + step] for view in views)


def _half(view: Any, which: str) -> Any:
    """The upper or lower halves of elements of four bytes, whatever their strides."""
    if isinstance(view, np.ndarray):
        return view.view(_HALVES)[which]
    # Adding an axis of one element makes the last stride 1, which torch wants before it changes the type.
    narrow = view.new_empty(0).short().dtype
    return view.unsqueeze(-1).view(narrow)[..., 1 if which == "high" else 0]
