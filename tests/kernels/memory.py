"""Pieces in one arena of bytes, in every way that memory can be cut; what stands between them is guarded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.kernels.pieces import KernelTable, Piece, Pieces

from .models import Tensors

Bits = np.ndarray[Any, Any]
TensorBox = tuple[tuple[int, ...], tuple[int, ...]]
"""First element and size along each axis of a tensor."""

DISJOINT = ("whole", "whole", "rows", "columns", "blocks", "crumbs", "clipped", "missing", "empty")
COVERING = ("whole", "rows", "columns", "blocks", "replicated", "overlapping")
ANY = (*DISJOINT, "replicated", "overlapping", "a part twice")
LAYOUTS = ("packed", "packed", "transposed", "reversed", "sliced", "padded", "spread", "odd", "wild")
GUARD = 24


@dataclass(frozen=True)
class Place:
    """A box of a tensor, and where in the arena its elements stand."""

    array: int
    member: int
    lo: tuple[int, ...]
    size: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]

    def slices(self) -> tuple[Any, ...]:
        """The box as an index into its tensor; what it gives is an array, also of one without axes."""
        return (*(slice(low, low + size) for low, size in zip(self.lo, self.size, strict=True)), ...)

    def offsets(self) -> NDArray[np.int64]:
        """The byte offset of every element, in the shape of the box."""
        at = np.full(self.size, self.offset, np.int64)
        for axis, stride in enumerate(self.strides):
            along = [1] * len(self.size)
            along[axis] = -1
            at += (np.arange(self.size[axis], dtype=np.int64) * stride).reshape(along)
        return at


class Memory:
    """An arena and the pieces in it. Compare ``arena`` as a whole: it shows every byte that moved."""

    def __init__(self, table: KernelTable, places: list[Place], arena: NDArray[np.uint8]) -> None:
        self.table, self.places, self.arena = table, places, arena
        self.views = [
            np.ndarray(place.size, table.arrays[place.array].storage, arena, place.offset, place.strides)
            for place in places
        ]
        self.pieces = Pieces(
            table,
            [
                Piece(place.array, place.member, place.lo, view)
                for place, view in zip(places, self.views, strict=True)
            ],
        )

    def copy(self) -> Memory:
        """The same pieces over memory of their own."""
        return Memory(self.table, self.places, self.arena.copy())

    def filled(self, tensors: Tensors) -> Memory:
        """A copy whose pieces hold these bits."""
        memory = self.copy()
        for place, view in zip(memory.places, memory.views, strict=True):
            view[...] = tensors[place.array, place.member][place.slices()]
        return memory

    def held(self) -> dict[tuple[int, int], NDArray[np.int64]]:
        """How many pieces hold each element of each tensor, by (array, member)."""
        counts = {
            (number, member): np.zeros(array.grid.extent[1:], np.int64)
            for number, array in enumerate(self.table.arrays)
            for member in range(array.grid.extent[0])
        }
        for place in self.places:
            counts[place.array, place.member][place.slices()] += 1
        return counts


def memory_of(table: KernelTable, rng: np.random.Generator, cuts: tuple[str, ...]) -> Memory:
    """Every tensor cut in one of ``cuts``, each piece in any layout, in an arena of random bytes."""
    places, end = [], GUARD
    for number, array in enumerate(table.arrays):
        members, *shape = array.grid.extent
        for member in range(members):
            for lo, size in boxes(tuple(shape), str(rng.choice(cuts)), rng):
                low, high, strides = layout(size, array.itemsize, str(rng.choice(LAYOUTS)), rng)
                align = array.itemsize if all(stride % array.itemsize == 0 for stride in strides) else 1
                offset = -(-(end - low) // align) * align
                places.append(Place(number, member, lo, size, offset, strides))
                end = offset + high + array.itemsize + GUARD
    order = rng.permutation(len(places))
    return Memory(table, [places[number] for number in order], rng.integers(0, 256, end, np.uint8))


def filled(table: KernelTable, tensors: Tensors, rng: np.random.Generator, cuts: tuple[str, ...]) -> Memory:
    return memory_of(table, rng, cuts).filled(tensors)


def boxes(shape: tuple[int, ...], cut: str, rng: np.random.Generator) -> list[TensorBox]:
    """Boxes of one tensor: all of it, a part of it, or more than all of it."""
    whole = (tuple(0 for _ in shape), shape)
    if cut == "missing":
        return []
    if cut == "empty":
        return [whole, (whole[0], tuple(0 for _ in shape))] if shape else [whole]
    if cut == "clipped":
        return [_clipped(shape, rng)]
    if cut == "a part twice":
        return [_clipped(shape, rng)] * 2
    if cut == "replicated":
        return [whole] * int(rng.integers(2, 4))
    if cut == "overlapping":
        return [_clipped(shape, rng), whole, _clipped(shape, rng)]
    return list(_grid_of_boxes(shape, cut, rng))


def _clipped(shape: tuple[int, ...], rng: np.random.Generator) -> TensorBox:
    lows = tuple(int(rng.integers(0, max(axis, 1))) for axis in shape)
    sizes = (int(rng.integers(min(axis, 1), axis - low + 1)) for low, axis in zip(lows, shape, strict=True))
    return lows, tuple(sizes)


def _grid_of_boxes(shape: tuple[int, ...], cut: str, rng: np.random.Generator) -> Iterator[TensorBox]:
    cuts: list[list[int]] = []
    for number, axis in enumerate(shape):
        chosen = {
            "whole": False,
            "rows": number == 0,
            "columns": number == len(shape) - 1,
            "crumbs": number == len(shape) - 1,
            "blocks": number >= len(shape) - 3,
        }[cut]
        inner = range(1, min(axis, 40)) if cut == "crumbs" else rng.integers(0, axis + 1, 2).tolist()
        cuts.append(sorted({0, axis, *(inner if chosen else ())}))
    for spans in product(*(pairwise(places) if len(places) > 1 else [(0, 0)] for places in cuts)):
        yield tuple(low for low, _ in spans), tuple(high - low for low, high in spans)


def layout(
    size: tuple[int, ...], itemsize: int, style: str, rng: np.random.Generator
) -> tuple[int, int, tuple[int, ...]]:
    """Strides in bytes, and the least and the greatest offset of an element. No two elements overlap."""
    wild = style == "wild"
    axes = rng.permutation(len(size)) if wild or style == "transposed" else np.arange(len(size))
    stride = itemsize * (int(rng.integers(2, 5)) if style == "sliced" else 1)
    stride += int(rng.integers(1, 8)) if style == "odd" else 0
    strides, low, high = [0] * len(size), 0, 0
    for axis in reversed(axes.tolist()):
        backwards = bool(rng.integers(0, 2)) if wild else style == "reversed"
        strides[axis] = -stride if backwards else stride
        reach = strides[axis] * max(size[axis] - 1, 0)
        low, high = low + min(reach, 0), high + max(reach, 0)
        if size[axis] == 1 and rng.integers(0, 2):
            strides[axis] = int(rng.integers(-(2**40), 2**40)) * itemsize
        stride *= max(size[axis], 1)
        if style == "padded" or (wild and rng.integers(0, 2)):
            stride += itemsize * int(rng.integers(0, 4))
        if style == "spread" and math.prod(size) * stride < 1 << 16:
            stride += itemsize * 700
    return low, high, tuple(strides)
