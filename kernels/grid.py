"""Chunk grids: how an array over (member, tensor axes) is cut (SPEC section "Chunk grid")."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

__all__ = ["Box", "ChunkGrid", "Indexes"]

Indexes = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle over (member, tensor axes): ``start`` inclusive, ``size`` elements along each axis."""

    start: tuple[int, ...]
    size: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements in the box."""
        return math.prod(self.size)

    @property
    def slices(self) -> tuple[slice, ...]:
        """The box as an index into an ndarray."""
        return tuple(slice(start, start + size) for start, size in zip(self.start, self.size, strict=True))


@dataclass(frozen=True)
class ChunkGrid:
    """A regular grid, as in Zarr v3: chunks of ``chunk`` elements per axis, cut short at the upper edges.

    Chunks are numbered row-major over the grid; an axis of extent 0 has no chunks.
    """

    extent: tuple[int, ...]
    chunk: tuple[int, ...]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Chunks along each axis."""
        return tuple(-(-extent // chunk) for extent, chunk in zip(self.extent, self.chunk, strict=True))

    def __len__(self) -> int:
        return math.prod(self.counts)

    def coordinates(self, chunk: int) -> tuple[int, ...]:
        """Place of chunk number ``chunk`` along each axis of the grid."""
        place = []
        for count in reversed(self.counts):
            chunk, here = divmod(chunk, count)
            place.append(here)
        return tuple(reversed(place))

    def box(self, chunk: int) -> Box:
        """The elements of chunk number ``chunk``."""
        start = tuple(at * step for at, step in zip(self.coordinates(chunk), self.chunk, strict=True))
        size = tuple(
            min(step, extent - at) for at, step, extent in zip(start, self.chunk, self.extent, strict=True)
        )
        return Box(start, size)

    def number(self, box: Box) -> int:
        """The chunk that starts where ``box`` does: the inverse of ``box``."""
        number = 0
        for at, step, count in zip(box.start, self.chunk, self.counts, strict=True):
            number = number * count + at // step
        return number

    def boxes(self) -> Iterator[tuple[int, Box]]:
        """Every chunk with its box, in order."""
        for chunk in range(len(self)):
            yield chunk, self.box(chunk)

    def coordinate_along(self, chunks: np.ndarray[Any, Any], axis: int) -> np.ndarray[Any, Any]:
        """Vectorised ``coordinates(chunk)[axis]`` for an array of chunk numbers."""
        inner = math.prod(self.counts[axis + 1 :])
        along: np.ndarray[Any, Any] = (chunks // inner) % self.counts[axis]
        return along

    def locate(self, box: Box, positions: np.ndarray[Any, Any]) -> tuple[Indexes, Indexes]:
        """Chunk-relative row-major positions -> (member numbers, flat indexes in the tensor), both int64."""
        inner, axis = 1, len(self.extent) - 1
        while axis > 0 and box.size[axis] == self.extent[axis]:
            inner *= box.size[axis]
            axis -= 1
        rest = positions.astype(np.int64)
        if axis == 0:
            rest, flat = np.divmod(rest, inner)
            return rest + box.start[0], flat
        rest, flat = np.divmod(rest, box.size[axis] * inner)
        flat += box.start[axis] * inner
        stride = self.extent[axis] * inner
        for outer in range(axis - 1, 0, -1):
            rest, here = np.divmod(rest, box.size[outer])
            flat += (here + box.start[outer]) * stride
            stride *= self.extent[outer]
        return rest + box.start[0], flat

    def elements(self, chunks: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Vectorised number of elements of each chunk, as int64."""
        total = np.ones(len(chunks), dtype=np.int64)
        for axis, (extent, step) in enumerate(zip(self.extent, self.chunk, strict=True)):
            start = self.coordinate_along(chunks, axis).astype(np.int64) * step
            total *= np.minimum(step, extent - start)
        return total
