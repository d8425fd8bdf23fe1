"""Tensors that the stream has apart but that are one memory here, such as an embedding and its tied head."""

from __future__ import annotations

from typing import Any

import numpy as np

from deltastore.errors import InputError
from deltastore.format.records import DeltaRecord
from deltastore.format.table import TensorTable
from deltastore.kernels.grid import Box

__all__ = ["TiedChanges"]

Bits = np.ndarray[Any, Any]
Place = tuple[int, int]
"""(array, member) of a tensor."""


class TiedChanges:
    """What one delta does to tied tensors: it must do the same to all that are one memory.

    ``groups``: the places of tensors that share exactly their memory. Costs nothing where there are none.
    """

    def __init__(self, table: TensorTable, groups: list[list[Place]]) -> None:
        self._table = table
        self._groups = groups
        self._found: dict[Place, list[tuple[Bits, Bits]]] = {place: [] for group in groups for place in group}

    def add(self, array: int, box: Box, positions: Bits, current: Bits, bits: Bits) -> None:
        """Take note of a patch: ``bits`` (k,) replace ``current`` (k,) at ``positions`` (k,) of the chunk."""
        if not self._groups:
            return
        members, flat = self._table.arrays[array].grid.locate(box, positions)
        moved = current != bits
        for member in np.unique(members[moved]).tolist():
            if (array, member) in self._found:
                mine = moved & (members == member)
                self._found[array, member].append((flat[mine], bits[mine]))

    def check(self, record: DeltaRecord) -> None:
        """``InputError("wrong_memory")`` when the delta would make tensors differ that are one memory."""
        for first, *others in self._groups:
            for other in others:
                if not _equal(self._changes(first), self._changes(other)):
                    names = [self._table.arrays[array].names[member] for array, member in (first, other)]
                    raise InputError(
                        "wrong_memory",
                        f"tensors {names[0]!r} and {names[1]!r} are one memory here, but version "
                        f"{record.version} changes them apart: give each its own and open a new reader",
                        where=names[1],
                    )

    def _changes(self, place: Place) -> tuple[Bits, Bits]:
        parts = self._found[place]
        if not parts:
            return np.zeros(0, np.int64), np.zeros(0, np.uint8)
        flat = np.concatenate([part[0] for part in parts])
        order = np.argsort(flat)
        return flat[order], np.concatenate([part[1] for part in parts])[order]


def _equal(first: tuple[Bits, Bits], second: tuple[Bits, Bits]) -> bool:
    return np.array_equal(first[0], second[0]) and np.array_equal(first[1], second[1])
