"""Which elements of a chunk a process holds, and where: the intersection of a chunk with pieces.

The obvious way: every position of the chunk is numbered, and each piece cuts its box out of the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.kernels.grid import Box
from deltastore.kernels.pieces import Pieces

__all__ = ["HeldChunk"]

Bits = np.ndarray[Any, Any]


class HeldChunk:
    """The elements of one chunk that ``pieces`` hold. Memory O(elements of the chunk)."""

    def __init__(self, pieces: Pieces, array: int, chunk: int) -> None:
        box = pieces.table.arrays[array].grid.box(chunk)
        self.parts = list(_parts(pieces, array, box))
        """(positions, view) of every intersection with a piece, both in its shape."""
        self._array = pieces.table.arrays[array]
        self.elements = box.elements
        self.held_elements = sum(view.size for _, view in self.parts)
        """One that two pieces hold counts twice."""

    def gather(self) -> tuple[Bits, NDArray[np.bool_]]:
        """Bits ``(elements,)`` in row-major order and which are held; one held twice is the first's."""
        bits = np.zeros(self.elements, self._array.storage)
        held = np.zeros(self.elements, bool)
        for positions, view in reversed(self.parts):
            bits[positions.ravel()] = view.ravel()
            held[positions.ravel()] = True
        return bits, held

    def scatter(self, positions: NDArray[np.uint32], bits: Bits) -> None:
        """Write ``bits`` (k,) at ``positions`` (k,), in every piece that holds the element."""
        new = np.zeros(self.elements, self._array.storage)
        written = np.zeros(self.elements, bool)
        new[positions], written[positions] = bits, True
        for places, view in self.parts:
            view[written[places]] = new[places][written[places]]

    def mismatches(self, positions: NDArray[np.uint32], bits: Bits) -> int:
        """How many elements in memory are not what ``scatter`` would write."""
        new = np.zeros(self.elements, self._array.storage)
        written = np.zeros(self.elements, bool)
        new[positions], written[positions] = bits, True
        return sum(int((written[places] & (view != new[places])).sum()) for places, view in self.parts)


def _parts(pieces: Pieces, array: int, box: Box) -> Iterator[tuple[NDArray[np.int64], Bits]]:
    """(positions, view) of every intersection with a piece, both in its shape."""
    numbers: Bits = np.arange(box.elements, dtype=np.int64).reshape(box.size)
    for offset in range(box.size[0]):
        for piece in pieces.of(array, box.start[0] + offset):
            lows = [max(low, start) for low, start in zip(piece.lo, box.start[1:], strict=True)]
            highs = [
                min(low + size, start + extent)
                for low, size, start, extent in zip(
                    piece.lo, piece.size, box.start[1:], box.size[1:], strict=True
                )
            ]
            if all(low < high for low, high in zip(lows, highs, strict=True)):
                spans = list(zip(lows, highs, strict=True))
                inside = tuple(slice(a - at, b - at) for (a, b), at in zip(spans, box.start[1:], strict=True))
                taken = tuple(slice(a - at, b - at) for (a, b), at in zip(spans, piece.lo, strict=True))
                place: Any = (offset, *inside, ...)
                yield numbers[place], piece.view[(*taken, ...)]
