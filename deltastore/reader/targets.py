"""Live tensors that a reader writes into: checked once, then gathered from and scattered to by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from deltastore.errors import InputError
from deltastore.format.table import TensorTable
from deltastore.kernels.grid import Box
from deltastore.layout.live import LiveWeights
from deltastore.layout.memory import LiveTensors, memory_of, same_memory

__all__ = ["Targets"]

_MAX_WORK = 1_000_000

Bits = np.ndarray[Any, Any]
Positions = np.ndarray[Any, np.dtype[np.uint32]]


class Targets:
    """All tensors of the table as writable memory.

    Raises ``InputError`` for a tensor that is missing, unknown, of another shape or type, read-only, or that
    shares part of its memory with another one. Tied tensors (exactly the same memory) are fine.
    """

    def __init__(self, table: TensorTable, tensors: LiveTensors) -> None:
        self.weights = LiveWeights(table, tensors)
        self._table = table
        self._views = [self.weights.views(array) for array in range(len(table.arrays))]
        named = [
            (name, view)
            for array, views in zip(table.arrays, self._views, strict=True)
            for name, view in zip(array.names, views, strict=True)
        ]
        for name, view in named:
            if not view.flags.writeable:
                message = f"tensor {name!r} is read-only: give one that can change"
                raise InputError("wrong_memory", message, where=name)
        _check_apart(named)
        self.tied = self._tied()

    def _tied(self) -> list[list[tuple[int, int]]]:
        """The (array, member) places of tensors that are one memory, in groups of two or more."""
        groups: dict[object, list[tuple[int, int]]] = {}
        for array, views in enumerate(self._views):
            for member, view in enumerate(views):
                if view.size:
                    groups.setdefault(memory_of(view), []).append((array, member))
        return [group for group in groups.values() if len(group) > 1]

    def gather(self, array: int, box: Box, positions: Positions) -> Bits:
        """The bits now standing at chunk-relative ``positions``, as a new array."""
        result = np.empty(len(positions), dtype=self._table.arrays[array].element.storage)
        for view, index, chosen in self._parts(array, box, positions):
            result[chosen] = view[index]
        return result

    def scatter(self, array: int, box: Box, positions: Positions, bits: Bits) -> None:
        """Write ``bits`` at chunk-relative ``positions``, which are known to lie inside the box."""
        for view, index, chosen in self._parts(array, box, positions):
            view[index] = bits[chosen]

    def write(self, array: int, box: Box, bits: Bits) -> None:
        """Write a whole chunk."""
        for offset in range(box.size[0]):
            self._views[array][box.start[0] + offset][box.slices[1:]] = bits[offset]

    def _parts(self, array: int, box: Box, positions: Positions) -> Iterator[tuple[Bits, Any, Any]]:
        """(memory, index into it, which of the positions) for each tensor that the positions touch."""
        members, flat = self._table.arrays[array].grid.locate(box, positions)
        if box.size[0] == 1:
            yield *self._place(array, box.start[0], flat), slice(None)
            return
        order = np.argsort(members, kind="stable")
        edges = np.flatnonzero(np.diff(members[order])) + 1
        for chosen in np.split(order, edges):
            if len(chosen):
                yield *self._place(array, int(members[chosen[0]]), flat[chosen]), chosen

    def _place(self, array: int, member: int, flat: Any) -> tuple[Bits, Any]:
        view = self._views[array][member]
        if view.flags.c_contiguous:
            return view.reshape(-1), flat
        return view, np.unravel_index(flat, view.shape)


def _check_apart(named: list[tuple[str, Bits]]) -> None:
    """Refuse two tensors that share memory, unless they are the same memory."""
    spans = sorted(
        ((*np.lib.array_utils.byte_bounds(view), name, view) for name, view in named if view.size),
        key=lambda span: span[:2],
    )
    reaching: list[tuple[int, int, str, Bits]] = []
    for span in spans:
        low, _, name, view = span
        reaching = [other for other in reaching if other[1] > low]
        for _, _, other_name, other in reaching:
            if not same_memory(view, other) and _share(view, other):
                raise InputError(
                    "wrong_memory",
                    f"tensors {other_name!r} and {name!r} share part of their memory: give separate ones",
                    where=name,
                )
        reaching.append(span)


def _share(first: Bits, second: Bits) -> bool:
    """Whether two views share an element; a case too hard to decide counts as sharing."""
    try:
        return bool(np.shares_memory(first, second, max_work=_MAX_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
