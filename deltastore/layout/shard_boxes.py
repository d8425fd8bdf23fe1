"""Which elements of a stream one process holds: a layout seen through the stream's table. No memory yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import InputError
from deltastore.format.table import TensorSpec, TensorTable
from deltastore.kernels.rows import ChunkList, chunk_list
from deltastore.layout.checking import check_layout
from deltastore.layout.meeting import BoxIndex, Span
from deltastore.layout.parts import intersection
from deltastore.layout.pieces import Axes, Layout, Piece

__all__ = ["HeldBox", "ShardBoxes"]


@dataclass(frozen=True, slots=True)
class HeldBox:
    """Box ``[lo, lo + size)`` of member ``member`` of an array, which lies in ``piece``."""

    array: int
    member: int
    lo: Axes
    size: Axes
    piece: Piece


class ShardBoxes:
    """What of ``table`` a process with ``layout`` holds.

    ``every``: a box for each piece, and one more for each alias of its tensor that the table has. ``once``:
    the same elements, each in one box. ``twice``: pairs of equal boxes that stand in two pieces. ``tied``:
    (array, member) places of tensors that are one memory here.

    Raises ``InputError``: ``bad_layout`` for one that is not sound; naming the tensor when layout and table
    are not of the same model, ``unknown_tensor``, ``missing_tensor``, ``wrong_shape``, ``wrong_dtype``.
    """

    def __init__(self, table: TensorTable, layout: Layout) -> None:
        check_layout(layout)
        self.table = table
        names = _names_in(table, layout)
        self.tied = [
            [table.places[name] for name in same]
            for tensor, same in names.items()
            if len(same) > 1 and tensor in layout.of_tensor
        ]
        every: list[HeldBox] = []
        once: list[HeldBox] = []
        twice: list[tuple[HeldBox, HeldBox]] = []
        for tensor, pieces in layout.of_tensor.items():
            for name in names[tensor]:
                boxes = [HeldBox(*table.places[name], piece.lo, piece.size, piece) for piece in pieces]
                every += boxes
                if len(boxes) == 1:
                    once += boxes
                else:
                    _part(boxes, once, twice)
        self.every, self.once, self.twice = tuple(every), tuple(once), tuple(twice)

    @property
    def chunks(self) -> ChunkList:
        """The chunks of which elements are held, in pack order: ``(n,)`` of dtype ``CHUNK``."""
        return self._held[0]

    @property
    def whole(self) -> NDArray[np.bool_]:
        """Of each of ``chunks``, whether all of its elements are held: ``(n,)``."""
        return self._held[1]

    @cached_property
    def _held(self) -> tuple[ChunkList, NDArray[np.bool_]]:
        by_rank: dict[int, list[HeldBox]] = {}
        for box in self.once:
            by_rank.setdefault(len(box.lo), []).append(box)
        if not by_rank:
            return chunk_list([], []), np.zeros(0, np.bool_)
        found, mask = map(
            np.concatenate, zip(*(_chunks_of(self.table, same) for same in by_rank.values()), strict=True)
        )
        order = np.lexsort((found["chunk"], found["array"], self.table.slabs_of(found)))
        return found[order], mask[order]


def _names_in(table: TensorTable, layout: Layout) -> dict[str, list[str]]:
    """Layout's tensor -> its names in the table: its own, and aliases. All of both are accounted for."""
    others: dict[str, list[str]] = {}
    for alias, name in layout.aliases.items():
        if alias in table.places:
            others.setdefault(name, []).append(alias)
    names: dict[str, list[str]] = {}
    known: set[str] = set()
    for tensor in layout.tensors:
        own = [tensor.name] if tensor.name in table.places else []
        same = own + others.get(tensor.name, [])
        for spelled in same:
            _check_same(table, layout, tensor, spelled)
        if not same and not layout.is_unheld(tensor.name):
            raise InputError(
                "unknown_tensor",
                f"the stream has no tensor {tensor.name!r} (shape {list(tensor.shape)}), which layout "
                f"{layout.name} needs: give the configuration of the stream's model",
                where=tensor.name,
            )
        names[tensor.name] = same
        known.update(same)
    for name in table.places:
        if name not in known and not layout.is_unheld(name):
            raise InputError(
                "missing_tensor",
                f"tensor {name!r} of the stream is wanted by nobody: layout {layout.name} knows no tensor of "
                "that name; give the configuration of the stream's model",
                where=name,
            )
    return names


def _check_same(table: TensorTable, layout: Layout, tensor: TensorSpec, name: str) -> None:
    array = table.arrays[table.places[name][0]]
    if array.shape != tensor.shape:
        raise InputError(
            "wrong_shape",
            f"tensor {name!r} of the stream has shape {list(array.shape)} where layout {layout.name} has "
            f"{list(tensor.shape)}",
            where=name,
        )
    if array.dtype != tensor.dtype.name:
        raise InputError(
            "wrong_dtype",
            f"tensor {name!r} of the stream is {array.dtype} where layout {layout.name} has "
            f"{tensor.dtype.name}",
            where=name,
        )


def _part(boxes: Sequence[HeldBox], once: list[HeldBox], twice: list[tuple[HeldBox, HeldBox]]) -> None:
    """Sort boxes of one tensor into elements held for the first time, and copies of such."""
    index = BoxIndex([(box.lo, box.size) for box in boxes])
    for number, box in enumerate(boxes):
        left: list[Span] = [(box.lo, box.size)]
        for earlier, shared in index.meeting(box.lo, box.size):
            if earlier == number:
                break
            twice.append((_cut(boxes[earlier], *shared), _cut(box, *shared)))
            left = [rest for span in left for rest in _without(span, shared)]
        once += [_cut(box, *span) for span in left]


def _cut(box: HeldBox, lo: Axes, size: Axes) -> HeldBox:
    return HeldBox(box.array, box.member, lo, size, box.piece)


def _without(span: Span, hole: Span) -> Iterator[Span]:
    """``span`` less ``hole``, as boxes."""
    shared = intersection(*span, *hole)
    if shared is None:
        yield span
        return
    lo, size = list(span[0]), list(span[1])
    for axis, (start, length) in enumerate(zip(*shared, strict=True)):
        for first, count in (
            (lo[axis], start - lo[axis]),
            (start + length, lo[axis] + size[axis] - start - length),
        ):
            if count:
                yield (*lo[:axis], first, *lo[axis + 1 :]), (*size[:axis], count, *size[axis + 1 :])
        lo[axis], size[axis] = start, length


def _chunks_of(table: TensorTable, boxes: Sequence[HeldBox]) -> tuple[ChunkList, NDArray[np.bool_]]:
    """The chunks that disjoint ``boxes`` of tensors of one rank meet, ascending, and which they fill."""
    arrays = np.array([box.array for box in boxes], np.int64)
    used, where = np.unique(arrays, return_inverse=True)
    grids = [table.arrays[number].grid for number in used.tolist()]
    steps = np.array([grid.chunk for grid in grids], np.int64)[where]
    extents = np.array([grid.extent for grid in grids], np.int64)[where]
    cells = -(-extents // steps)
    lows: NDArray[np.int64] = np.array([(box.member, *box.lo) for box in boxes], np.int64)
    ends = lows + np.array([(1, *box.size) for box in boxes], np.int64)
    first = lows // steps
    counts = (ends - 1) // steps - first + 1
    totals = counts.prod(axis=1)
    owner = np.repeat(np.arange(len(boxes)), totals)
    rest = np.arange(len(owner)) - np.repeat(np.cumsum(totals) - totals, totals)
    numbers, held, whole = np.zeros(len(owner), np.int64), np.ones_like(owner), np.ones_like(owner)
    stride = np.ones_like(owner)
    for axis in range(lows.shape[1] - 1, -1, -1):
        rest, here = np.divmod(rest, counts[owner, axis])
        here += first[owner, axis]
        start = here * steps[owner, axis]
        end = np.minimum(start + steps[owner, axis], extents[owner, axis])
        held *= np.minimum(ends[owner, axis], end) - np.maximum(lows[owner, axis], start)
        whole *= end - start
        numbers += here * stride
        stride *= cells[owner, axis]
    met = chunk_list(arrays[owner], numbers)
    order = np.lexsort((numbers, arrays[owner]))
    met, held, whole = met[order], held[order], whole[order]
    starts = np.flatnonzero(np.concatenate(([True], met[1:] != met[:-1])))
    return met[starts], np.add.reduceat(held, starts) == whole[starts]
