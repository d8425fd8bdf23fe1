"""Layouts: how one process holds the tensors of a model (SPEC section "Layouts").

A *piece* is a box of one tensor and the place where it stands in a parameter: along axis ``axes[d]`` of the
parameter runs axis d of the tensor. So ``memory[base + sum of i_d * strides_d] = tensor[lo + i]``, and a
transposed, fused, stacked, padded or sharded parameter is a few pieces. Trainers and engines are alike.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from deltastore.errors import InputError
from deltastore.format.dtypes import Dtype
from deltastore.format.table import TensorSpec
from deltastore.layout.parts import intersection

__all__ = ["Axes", "Hole", "Layout", "Param", "Piece"]

Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter in memory: its name, ``shape`` and element type, as the process has it.

    ``dtype``: F32 may hold BF16 tensors, each exactly widened. ``view``: the shape in which pieces see the
    memory, row-major, where that is not ``shape``; such a parameter must be contiguous.
    """

    name: str
    shape: Axes
    dtype: Dtype
    view: Axes | None = None

    @property
    def form(self) -> Axes:
        """The shape that pieces are boxes of."""
        return self.shape if self.view is None else self.view

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, order=True)
class Piece:
    """Box ``[lo, lo + size)`` of ``tensor`` stands in ``param`` from index ``at`` of its form on.

    Axis d of the tensor runs along axis ``axes[d]``; along the others the piece is one element thick.
    ``replica``: 0 for the one of equal copies in a world of processes that a trainer publishes; above it for
    all others, whatever the number.
    """

    tensor: str
    lo: Axes
    size: Axes
    param: str
    at: Axes
    axes: Axes
    replica: int = 0

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.size)

    @property
    def extent(self) -> Axes:
        """Its size along the axes of the parameter's form."""
        sizes = [1] * len(self.at)
        for axis, length in zip(self.axes, self.size, strict=True):
            sizes[axis] = length
        return tuple(sizes)

    def base(self, form: Axes) -> int:
        """Index of its first element in a row-major parameter of shape ``form``."""
        return sum(at * math.prod(form[axis + 1 :]) for axis, at in enumerate(self.at))

    def strides(self, form: Axes) -> Axes:
        """Elements between neighbours along each axis of the tensor, in a row-major parameter."""
        return tuple(math.prod(form[axis + 1 :]) for axis in self.axes)

    def narrowed(self, lo: Axes, size: Axes) -> Piece:
        """The part of it that is box ``[lo, lo + size)`` of the tensor, which lies inside."""
        at = list(self.at)
        for axis, low, first in zip(self.axes, lo, self.lo, strict=True):
            at[axis] += low - first
        return replace(self, lo=lo, size=size, at=tuple(at))

    def clipped(self, start: Axes, size: Axes) -> Piece | None:
        """What of it is in box ``[start, start + size)`` of the form, as a piece of that box; or None."""
        shared = intersection(self.at, self.extent, start, size)
        if shared is None:
            return None
        low, extent = shared
        lo = tuple(first + low[axis] - self.at[axis] for first, axis in zip(self.lo, self.axes, strict=True))
        inside = self.narrowed(lo, tuple(extent[axis] for axis in self.axes))
        return replace(inside, at=tuple(map(operator.sub, low, start)))

    def view_of(self, memory: Any) -> Any:
        """Its elements with the tensor's axes: a view of ``memory`` (NumPy, torch), which has the form."""
        index: list[slice | int] = list(self.at)
        for axis, length in zip(self.axes, self.size, strict=True):
            index[axis] = slice(self.at[axis], self.at[axis] + length)
        view = memory[(*index, ...)]
        kept = sorted(self.axes)
        order = [kept.index(axis) for axis in self.axes]
        if order == sorted(order):
            return view
        return view.permute(order) if hasattr(view, "permute") else view.transpose(order)


@dataclass(frozen=True, slots=True, order=True)
class Hole:
    """Box ``[at, at + size)`` of a parameter's form that no tensor feeds, such as padding."""

    param: str
    at: Axes
    size: Axes


@dataclass(frozen=True)
class Layout:
    """How one process holds a model. Made by ``layouts.vllm``, ``layouts.megatron``, ..., or by ``Drawing``.

    Those are checked when made, any other where it is first used (see ``check_layout``).
    ``name`` says of which process, for people. ``tensors``: all of the model's, held here or not;
    ``aliases``: names of tensors that stand for others (a tied head). ``ties``: names of parameters that are
    the memory of others. ``unheld``: prefixes of tensors that no process needs.
    """

    name: str
    tensors: tuple[TensorSpec, ...]
    params: tuple[Param, ...]
    pieces: tuple[Piece, ...]
    holes: tuple[Hole, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    ties: Mapping[str, str] = field(default_factory=dict)
    unheld: tuple[str, ...] = ()

    @cached_property
    def specs(self) -> dict[str, TensorSpec]:
        """Tensor name -> what it is."""
        return {tensor.name: tensor for tensor in self.tensors}

    @cached_property
    def forms(self) -> dict[str, Param]:
        """Parameter name -> what it is."""
        return {param.name: param for param in self.params}

    @cached_property
    def of_tensor(self) -> dict[str, list[Piece]]:
        """Tensor name -> its pieces here; only of tensors that have one."""
        found: dict[str, list[Piece]] = {}
        for piece in self.pieces:
            found.setdefault(piece.tensor, []).append(piece)
        return found

    @cached_property
    def of_param(self) -> dict[str, list[Piece]]:
        """Parameter name -> its pieces; only of parameters that have one."""
        found: dict[str, list[Piece]] = {}
        for piece in self.pieces:
            found.setdefault(piece.param, []).append(piece)
        return found

    @property
    def elements(self) -> int:
        """Elements of all pieces."""
        return sum(piece.elements for piece in self.pieces)

    @property
    def nbytes(self) -> int:
        """Bytes of all parameters."""
        return sum(param.elements * param.dtype.itemsize for param in self.params)

    def is_unheld(self, tensor: str) -> bool:
        """Whether no process of this kind has any use for a tensor of that name."""
        return any(tensor.startswith(prefix) for prefix in self.unheld)

    def param(self, name: str) -> Param:
        """The parameter of that name, or that it is tied to; ``InputError("unknown_tensor")``."""
        found = self.forms.get(self.ties.get(name, name))
        if found is None:
            raise InputError(
                "unknown_tensor",
                f"layout {self.name} has no parameter {name!r}: leave it out, or give another layout",
                where=name,
            )
        return found
