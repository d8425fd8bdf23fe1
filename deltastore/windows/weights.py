"""The weights of a window in one buffer: small chunks that follow one another stand in it as one box.

So what is done for each chunk is done by NumPy, and kernels find a chunk among few pieces.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deltastore.anchors.stored_chunks import StoredChunks
from deltastore.format.table import TensorTable
from deltastore.kernels.grid import Box, ChunkGrid
from deltastore.kernels.pieces import Piece, Pieces
from deltastore.kernels.rows import ChunkList
from deltastore.windows.cutting import Window

__all__ = ["Weights"]

Bits = np.ndarray[Any, Any]

_JOINED_BYTES: Final = 64 << 10
"""Chunks up to here are joined to boxes: the rows of larger ones had better stand together."""

_LONE_ELEMENTS: Final = 1024
"""Chunks above are copied one by one."""

_AT_ONCE: Final = 1 << 18
"""Rows of chunks that are copied together, each with an index of eight bytes."""


@dataclass(frozen=True, slots=True)
class _Held:
    """Consecutive chunks ``[first, end)`` of an array that are a box; it starts at byte ``start``."""

    array: int
    grid: ChunkGrid
    first: int
    end: int
    box: Box
    start: int
    bits: Bits

    def view(self, chunk: int) -> Bits:
        """The bits of one chunk, in the shape of its box."""
        box = self.grid.box(chunk)
        return self.bits[
            tuple(
                slice(low - start, low - start + size)
                for low, start, size in zip(box.start, self.box.start, box.size, strict=True)
            )
        ]


class Weights:
    """The bits of a window's chunks, in one buffer."""

    def __init__(self, table: TensorTable, window: Window) -> None:
        places, end = [], 0
        for array, first, last, box in _boxes(table, window.chunks):
            places.append((array, first, last, box, end))
            end += -(-box.elements * table.arrays[array].element.itemsize // 8) * 8
        self._octets = np.empty(end, np.uint8)
        self._held = [
            _Held(
                array, table.arrays[array].grid, first, last, box, start, self._bits(table, array, box, start)
            )
            for array, first, last, box, start in places
        ]
        self._firsts = np.array([_place(held.array, held.first) for held in self._held], np.uint64)
        self.pieces = Pieces(table.kernels, self._pieces())

    @cached_property
    def chunks(self) -> dict[tuple[int, int], Bits]:
        """(array, chunk) -> its bits in the shape of its box, a view with any strides; ascending."""
        return {
            (held.array, chunk): held.view(chunk)
            for held in self._held
            for chunk in range(held.first, held.end)
        }

    def fill(self, stored: StoredChunks) -> None:
        """Take the bits of some chunks, all of which the window has."""
        numbers, array = stored.numbers, stored.number
        low, high = np.searchsorted(
            self._firsts,
            np.array([_place(array, int(numbers[0])), _place(array, int(numbers[-1]))], np.uint64),
            "right",
        ).tolist()
        for held in self._held[low - 1 : high]:
            first, last = np.searchsorted(numbers, (held.first, held.end)).tolist()
            chosen = np.arange(first, last)
            if len(chosen) == 1 or math.prod(held.grid.chunk) > _LONE_ELEMENTS:
                for at in chosen.tolist():
                    held.view(int(numbers[at]))[...] = stored.view(at)
            else:
                for part in np.unique(stored.held[chosen]).tolist():
                    self._fill(held, stored, part, chosen[stored.held[chosen] == part])

    def take(self, other: Weights) -> None:
        """Become a copy of the same window's ``other`` weights."""
        self._octets[:] = other._octets

    def _bits(self, table: TensorTable, array: int, box: Box, start: int) -> Bits:
        storage = table.arrays[array].element.storage
        return np.frombuffer(self._octets, storage, box.elements, start).reshape(box.size)

    def _pieces(self) -> Iterator[Piece]:
        for held in self._held:
            for offset in range(held.box.size[0]):
                member = held.box.start[0] + offset
                yield Piece(held.array, member, held.box.start[1:], held.bits[(offset, ...)])

    def _fill(self, held: _Held, stored: StoredChunks, part: int, chosen: NDArray[np.int64]) -> None:
        """Take ``chosen`` chunks, all out of one part: those of one size at a time."""
        grid = held.grid
        axes = range(len(grid.extent))
        starts = np.stack([grid.coordinate_along(stored.numbers[chosen], axis) for axis in axes], axis=1)
        starts *= np.array(grid.chunk)
        sizes = np.minimum(np.array(grid.chunk), np.array(grid.extent) - starts)
        # Only the last chunk along an axis is shorter, so this tells sizes apart.
        short = (sizes < np.array(grid.chunk)) @ (1 << np.arange(len(grid.extent), dtype=np.int64))
        for code in np.unique(short).tolist():
            mine = np.flatnonzero(short == code)
            size = tuple(sizes[mine[0]].tolist())
            origins = (starts[mine] - np.array(held.box.start)) @ np.array(held.bits.strides)
            rows, length = _rows(size, held.box.size, held.bits.strides)
            step = max(_AT_ONCE // len(rows), 1)
            for low in range(0, len(mine), step):
                some = mine[low : low + step]
                whole = stored.gathered(part, chosen[some])
                cut = np.ascontiguousarray(whole[(slice(None), *(slice(one) for one in size))])
                nbytes = length * cut.itemsize
                # One item per row of a chunk, which may start at any byte.
                anywhere: NDArray[Any] = np.ndarray(
                    (len(self._octets) - nbytes + 1,), f"V{nbytes}", self._octets.data, strides=(1,)
                )
                to = held.start + origins[low : low + step, None] + rows
                anywhere[to] = cut.reshape(-1).view(f"V{nbytes}").reshape(to.shape)


def _place(array: int, chunk: int) -> int:
    return (array << 32) | chunk


def _rows(
    size: tuple[int, ...], within: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[NDArray[np.int64], int]:
    """Where the contiguous rows of a box start in a larger one, in bytes from its start; elements of each."""
    axis = len(size) - 1
    length = size[axis]
    while axis > 0 and size[axis] == within[axis]:
        axis -= 1
        length *= size[axis]
    starts = np.zeros(1, np.int64)
    for count, stride in zip(size[:axis], strides[:axis], strict=True):
        starts = (starts[:, None] + np.arange(count) * stride).reshape(-1)
    return starts, length


def _boxes(table: TensorTable, chunks: ChunkList) -> Iterator[tuple[int, int, int, Box]]:
    """(array, first chunk, end, box): all of ``chunks``, which ascend."""
    places = (chunks["array"].astype(np.int64) << 32) | chunks["chunk"]
    cuts = np.flatnonzero(np.diff(places) != 1) + 1
    for start, end in itertools.pairwise([0, *cuts.tolist(), len(chunks)]):
        array, first = chunks[start].tolist()
        grid, itemsize = table.arrays[array].grid, table.arrays[array].element.itemsize
        joined = math.prod(grid.chunk) * itemsize <= _JOINED_BYTES
        at, last = first, first + end - start
        while at < last:
            count = _longest(grid, at, last) if joined else 1
            low, high = grid.box(at), grid.box(at + count - 1)
            ends = [one + size for one, size in zip(high.start, high.size, strict=True)]
            size = tuple(high - start for high, start in zip(ends, low.start, strict=True))
            yield array, at, at + count, Box(low.start, size)
            at += count


def _longest(grid: ChunkGrid, first: int, end: int) -> int:
    """How many chunks from ``first`` on, none at ``end`` or above, are a box: about as many as can be."""
    for axis, count in enumerate(grid.counts):
        inner = math.prod(grid.counts[axis + 1 :])
        if first % inner == 0 and end - first >= inner:
            at = first // inner
            return min(end // inner, (at // count + 1) * count) * inner - first
    return 1
