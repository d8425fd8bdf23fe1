"""Which elements somebody holds: all of a table, or boxes of its arrays; and these as pieces of chunks."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import InputError
from deltastore.format.table import TensorTable
from deltastore.kernels.pieces import Piece, Pieces
from deltastore.kernels.rows import ChunkList, chunk_list
from deltastore.layout.boxes import is_inside
from deltastore.layout.coverage import OwnedBox, merged_members
from deltastore.layout.meeting import BoxIndex
from deltastore.layout.parts import slices_at
from deltastore.layout.shard_boxes import ShardBoxes

__all__ = ["Held", "boxes_of"]

Bits = np.ndarray[Any, Any]

_MOST_MET: Final = 1 << 24
"""Most pairs of a box and a chunk that it meets: those of a layout are a few for each chunk."""


def boxes_of(shard: ShardBoxes) -> list[OwnedBox]:
    """The elements of a shard, each in one box, in few boxes."""
    return merged_members([OwnedBox(box.array, (box.member, *box.lo), (1, *box.size)) for box in shard.once])


class Held:
    """Elements of ``table``: those in ``boxes``, or all where that is None.

    Raises ``InputError("bad_layout")`` for a box outside its array, or so many that they cannot be disjoint.
    """

    def __init__(self, table: TensorTable, boxes: Sequence[OwnedBox] | None) -> None:
        self.table = table
        self._boxes: dict[int, list[OwnedBox]] | None = None
        if boxes is None:
            return
        self._boxes = {}
        for box in boxes:
            extent = table.arrays[box.array].grid.extent if box.array < len(table.arrays) else ()
            if not extent or not is_inside(box.start, box.size, extent):
                raise InputError(
                    "bad_layout",
                    f"box {list(box.size)} from {list(box.start)} is not inside array {box.array} of the "
                    "table",
                )
            self._boxes.setdefault(box.array, []).append(box)

    @property
    def everything(self) -> bool:
        """Whether it is all of the table, said so."""
        return self._boxes is None

    @cached_property
    def chunks(self) -> ChunkList:
        """Chunks of which something is held, ascending by array and chunk: ``(n,)`` of dtype ``CHUNK``."""
        return self._counted[0]

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How many elements are held of each of ``chunks``: ``(n,)``."""
        return self._counted[1]

    @cached_property
    def elements(self) -> int:
        """How many in all."""
        return int(self.counts.sum())

    @cached_property
    def _counted(self) -> tuple[ChunkList, NDArray[np.int64]]:
        found = [_all_of(self.table, number) for number in range(len(self.table.arrays))]
        if self._boxes is not None:
            found = [_met(self.table, number, boxes) for number, boxes in sorted(self._boxes.items())]
        chunks = np.concatenate([chunk_list([], []), *(chunks for chunks, _ in found)])
        return chunks, np.concatenate([np.zeros(0, np.int64), *(counts for _, counts in found)])

    @cached_property
    def _indexes(self) -> dict[int, BoxIndex]:
        return {
            array: BoxIndex([(box.start, box.size) for box in boxes])
            for array, boxes in (self._boxes or {}).items()
        }

    def pieces(self, chunks: ChunkList, bits: Mapping[tuple[int, int], Bits]) -> Pieces:
        """What is held of ``chunks`` (n,) as pieces of ``bits``, each in the shape of its chunk's box."""
        listed = ((array, chunk, bits[array, chunk]) for array, chunk in chunks.tolist())
        if self._boxes is None:
            return Pieces.of_chunks(self.table.kernels, listed)
        return Pieces(self.table.kernels, self._cut(listed))

    def mark(self, array: int, chunk: int, mask: NDArray[np.bool_]) -> bool:
        """Set what is held of a chunk in ``mask``, which has the shape of its box; whether that is all."""
        box = self.table.arrays[array].grid.box(chunk)
        index = self._indexes.get(array)
        for _, (start, size) in () if index is None else index.meeting(box.start, box.size):
            mask[slices_at(start, size, box.start)] = True
            if size == box.size:
                return True
        return False

    def _cut(self, listed: Iterable[tuple[int, int, Bits]]) -> Iterator[Piece]:
        for array, chunk, bits in listed:
            box = self.table.arrays[array].grid.box(chunk)
            index = self._indexes.get(array)
            for _, (start, size) in () if index is None else index.meeting(box.start, box.size):
                inner = slices_at(start[1:], size[1:], box.start[1:])
                for member in range(start[0], start[0] + size[0]):
                    place: Any = (member - box.start[0], *inner, ...)
                    yield Piece(array, member, start[1:], bits[place])


def _all_of(table: TensorTable, number: int) -> tuple[ChunkList, NDArray[np.int64]]:
    grid = table.arrays[number].grid
    chunks = np.arange(len(grid), dtype=np.int64)
    return chunk_list(np.full(len(chunks), number), chunks), grid.elements(chunks)


def _met(table: TensorTable, number: int, boxes: list[OwnedBox]) -> tuple[ChunkList, NDArray[np.int64]]:
    """The chunks that boxes of one array meet, ascending, and how many elements of each."""
    grid = table.arrays[number].grid
    steps, extents = np.array(grid.chunk, np.int64), np.array(grid.extent, np.int64)
    lows: NDArray[np.int64] = np.array([box.start for box in boxes], np.int64)
    ends = lows + np.array([box.size for box in boxes], np.int64)
    first = lows // steps
    counts = (ends - 1) // steps - first + 1
    totals = [int(np.prod(row, dtype=object)) for row in counts]
    if sum(totals) > _MOST_MET:
        raise InputError("bad_layout", f"boxes of array {number} meet chunks more than {_MOST_MET} times")
    owner = np.repeat(np.arange(len(boxes)), totals)
    before = np.cumsum([0, *totals[:-1]])
    rest = np.arange(len(owner)) - before[owner]
    numbers, held, stride = np.zeros(len(owner), np.int64), np.ones(len(owner), np.int64), 1
    for axis in range(len(grid.chunk) - 1, -1, -1):
        rest, here = np.divmod(rest, counts[owner, axis])
        here = here + first[owner, axis]
        start = here * steps[axis]
        end = np.minimum(start + steps[axis], extents[axis])
        held *= np.minimum(ends[owner, axis], end) - np.maximum(lows[owner, axis], start)
        numbers += here * stride
        stride = operator.mul(stride, grid.counts[axis])
    chunks, where = np.unique(numbers, return_inverse=True)
    together = np.zeros(len(chunks), np.int64)
    np.add.at(together, where, held)
    return chunk_list(np.full(len(chunks), number), chunks), together
