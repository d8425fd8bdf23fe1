"""Boxes of a batch one after another in a buffer, and room for such buffers."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.detect.batch import BatchBox
from deltastore.kernels.blocks import Blocks
from deltastore.kernels.pieces import KernelTable, Piece, Pieces

__all__ = ["Bits", "Laid", "Room"]

Bits = np.ndarray[Any, Any]


class Laid:
    """``boxes`` as a buffer has them, and what kernels need to know of that, made once.

    ``numbers``: an index of the certificate that gives the buffer's blocks (B,), in their order.
    """

    def __init__(self, boxes: tuple[BatchBox, ...]) -> None:
        self.boxes = boxes
        self.blocks = Blocks([of.of for of in boxes])
        self.numbers = _numbers(boxes)
        self._over: dict[int, Pieces] = {}

    @property
    def elements(self) -> int:
        """Elements of all boxes."""
        return self.blocks.elements

    def in_boxes(self, bits: Bits) -> list[tuple[BatchBox, Bits]]:
        """Each box with its part of ``bits`` (n,), in the box's shape."""
        first = self.blocks.first.tolist()
        return [
            (of, bits[start:end].reshape(of.box.size))
            for of, start, end in zip(self.boxes, first[:-1], first[1:], strict=True)
        ]

    def parts_of(self, chosen: NDArray[np.bool_]) -> set[int]:
        """The numbers of the parts that have one of the ``chosen`` (B,) blocks."""
        boxes = np.searchsorted(self.blocks.first_block, np.flatnonzero(chosen), "right") - 1
        return {self.boxes[box].part for box in np.unique(boxes)}

    def over(self, table: KernelTable, bits: Bits) -> Pieces:
        """``bits`` (n,), a part of a room, as kernels take them."""
        place = bits.__array_interface__["data"][0]
        pieces = self._over.get(place)
        if pieces is None:
            pieces = Pieces(
                table,
                [Piece(of.box.array, of.box.member, of.box.lo, part) for of, part in self.in_boxes(bits)],
            )
            self._over[place] = pieces
        return pieces


def _numbers(boxes: tuple[BatchBox, ...]) -> slice | NDArray[np.int64]:
    joined = all(before.blocks[1] == after.blocks[0] for before, after in pairwise(boxes))
    if joined:
        return slice(boxes[0].blocks[0], boxes[-1].blocks[1]) if boxes else slice(0, 0)
    return np.concatenate([np.arange(*of.blocks, dtype=np.int64) for of in boxes])


class Room:
    """Memory for one batch's new, old and published bits, ``nbytes`` each, to be used again for each."""

    def __init__(self, nbytes: int) -> None:
        self._buffers = [np.empty(-(-nbytes // 8) * 8, np.uint8) for _ in range(3)]
        self.lock = threading.Lock()

    def views(self, storage: np.dtype[Any]) -> tuple[Bits, Bits, Bits]:
        """(new, old, published), each (n,) of ``storage``."""
        new, old, published = (buffer.view(storage) for buffer in self._buffers)
        return new, old, published
