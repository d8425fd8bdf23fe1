"""Layouts as JSON, to be kept or handed to another process (SPEC section "Layouts").

Tensors are stacked as in the tensor table; pieces name tensors and parameters by their number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from deltastore.format.dtypes import DTYPES, dtype_named
from deltastore.format.limits import MAX_RANK, NAMES_BYTES, TENSORS
from deltastore.format.names import PLACE, join_name
from deltastore.format.sealed import Count, Sealed, Strict
from deltastore.format.table import Range, TensorSpec, stack_tensors
from deltastore.layout.checking import check_layout
from deltastore.layout.pieces import Hole, Layout, Param, Piece

__all__ = ["LayoutObject"]

DtypeName = Annotated[str, Field(json_schema_extra={"enum": sorted(DTYPES)})]
Axes = Annotated[tuple[Count, ...], Field(max_length=MAX_RANK, fail_fast=True)]


class TensorStack(Strict):
    """Tensors of equal (pattern, shape, dtype), with their members as in the tensor table."""

    pattern: str
    dtype: DtypeName
    shape: Axes
    members: Annotated[tuple[Annotated[tuple[Range, ...], Field(fail_fast=True)], ...], Field(fail_fast=True)]

    @model_validator(mode="after")
    def _rules(self) -> Self:
        places = self.pattern.split(".").count(PLACE)
        if not self.members or any(len(box) not in (0, places) for box in self.members):
            raise ValueError(f"pattern {self.pattern!r:.80} does not take the indexes of its members")
        if any(low >= high for box in self.members for low, high in box):
            raise ValueError(f"pattern {self.pattern!r:.80} has an empty range of members")
        return self

    @property
    def count(self) -> int:
        """Number of tensors."""
        return sum(math.prod(high - low for low, high in box) for box in self.members)

    def specs(self) -> Iterator[TensorSpec]:
        """The tensors, in member order."""
        dtype = dtype_named(self.dtype)
        for box in self.members:
            for index in itertools.product(*(range(low, high) for low, high in box)):
                yield TensorSpec(join_name(self.pattern, index), self.shape, dtype)


class ParamEntry(Strict):
    """A parameter; ``view`` is null where pieces see it in its own shape."""

    name: str
    dtype: DtypeName
    shape: Axes
    view: Axes | None


class LayoutObject(Sealed):
    """A layout. Numbers of tensors count through ``tensors``, stack by stack in member order.

    ``pieces``: (tensor, lo, size, parameter, at, axes, replica); ``holes``: (parameter, at, size).
    """

    kind: Literal["layout"] = "layout"
    name: Annotated[str, Field(max_length=200)]
    tensors: Annotated[tuple[TensorStack, ...], Field(fail_fast=True)]
    params: Annotated[tuple[ParamEntry, ...], Field(fail_fast=True)]
    pieces: Annotated[tuple[tuple[Count, Axes, Axes, Count, Axes, Axes, Count], ...], Field(fail_fast=True)]
    holes: Annotated[tuple[tuple[Count, Axes, Axes], ...], Field(fail_fast=True)]
    aliases: dict[str, str]
    ties: dict[str, str]
    unheld: Annotated[tuple[str, ...], Field(fail_fast=True)]

    @model_validator(mode="after")
    def _rules(self) -> Self:
        count = sum(stack.count for stack in self.tensors)
        if max(count, len(self.params)) > TENSORS:
            raise ValueError(f"more than {TENSORS} tensors or parameters")
        if sum(stack.count * len(stack.pattern.encode()) for stack in self.tensors) > NAMES_BYTES:
            raise ValueError(f"more than {NAMES_BYTES} bytes of names")
        for piece in self.pieces:
            if piece[0] >= count or piece[3] >= len(self.params):
                raise ValueError("a piece names a tensor or a parameter that there is not")
        if any(hole[0] >= len(self.params) for hole in self.holes):
            raise ValueError("a hole names a parameter that there is not")
        return self

    @classmethod
    def of(cls, layout: Layout) -> Self:
        """The JSON form; equal layouts have equal bytes, whatever the order of their parts.

        ``InputError("bad_layout")`` for one that is not sound.
        """
        check_layout(layout)
        stacks = sorted(stack_tensors(layout.tensors), key=lambda stack: (stack[0], *_form(stack[1])))
        tensors = tuple(
            TensorStack(pattern=pattern, dtype=spec.dtype.name, shape=spec.shape, members=members)
            for pattern, spec, members in stacks
        )
        numbers = {spec.name: number for number, spec in enumerate(_specs(tensors))}
        params = sorted(layout.params, key=lambda param: param.name)
        places = {param.name: number for number, param in enumerate(params)}
        return cls.seal_new(
            name=layout.name,
            tensors=tensors,
            params=tuple(
                ParamEntry(name=one.name, dtype=one.dtype.name, shape=one.shape, view=one.view)
                for one in params
            ),
            pieces=tuple(
                sorted(
                    (numbers[one.tensor], one.lo, one.size, places[one.param], one.at, one.axes, one.replica)
                    for one in layout.pieces
                )
            ),
            holes=tuple(sorted((places[one.param], one.at, one.size) for one in layout.holes)),
            aliases=dict(layout.aliases),
            ties=dict(layout.ties),
            unheld=tuple(sorted(layout.unheld)),
        )

    def layout(self) -> Layout:
        """The layout; ``InputError("bad_layout")`` for one that is not sound."""
        specs = tuple(_specs(self.tensors))
        params = tuple(Param(one.name, one.shape, dtype_named(one.dtype), one.view) for one in self.params)
        pieces = tuple(
            Piece(specs[tensor].name, lo, size, params[param].name, at, axes, replica)
            for tensor, lo, size, param, at, axes, replica in self.pieces
        )
        holes = tuple(Hole(params[param].name, at, size) for param, at, size in self.holes)
        layout = Layout(self.name, specs, params, pieces, holes, self.aliases, self.ties, self.unheld)
        check_layout(layout)
        return layout


def _specs(stacks: tuple[TensorStack, ...]) -> Iterator[TensorSpec]:
    for stack in stacks:
        yield from stack.specs()


def _form(spec: TensorSpec) -> tuple[str, tuple[int, ...]]:
    return spec.dtype.name, spec.shape
