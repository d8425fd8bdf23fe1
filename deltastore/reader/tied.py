"""Tensors that the stream has apart but that are one memory here, such as an embedding and its tied head."""

from __future__ import annotations

from typing import Any

import numpy as np

from deltastore.errors import InputError
from deltastore.format.records import DeltaRecord
from deltastore.format.table import TensorTable
from deltastore.kernels.pieces import Pieces
from deltastore.kernels.rows import StagedBits
from deltastore.layout.piece_memory import bits_at

__all__ = ["Place", "check_tied"]

Bits = np.ndarray[Any, Any]
Place = tuple[int, int]
"""(array, member) of a tensor."""


def check_tied(
    table: TensorTable, pieces: Pieces, groups: list[list[Place]], new: StagedBits, record: DeltaRecord
) -> None:
    """``InputError("wrong_memory")`` when ``new`` would make tensors differ that are one memory.

    ``groups``: the places of tensors that share exactly their memory, as far as ``pieces`` hold them; ``new``
    has elements that they hold.
    """
    for first, *others in groups:
        expected = _changes(table, new, first)
        for other in others:
            if not _equal(pieces, first, expected, _changes(table, new, other)):
                names = [table.arrays[array].names[member] for array, member in (first, other)]
                raise InputError(
                    "wrong_memory",
                    f"tensors {names[0]!r} and {names[1]!r} are one memory here, but version "
                    f"{record.version} changes them apart: give each its own and open a new reader",
                    where=names[1],
                )


def _changes(table: TensorTable, new: StagedBits, place: Place) -> tuple[Bits, Bits]:
    """Flat indexes in the tensor, int64, and the bits that go there."""
    array, member = place
    grid, storage = table.arrays[array].grid, table.arrays[array].element.storage
    flats, values = [np.zeros(0, np.int64)], [np.zeros(0, storage)]
    for row in np.flatnonzero(new.chunks["array"] == array).tolist():
        positions = new.positions[new.starts[row] : new.starts[row + 1]]
        start = int(new.offsets[row])
        bits = new.bits[start : start + len(positions) * storage.itemsize].view(storage)
        members, flat = grid.locate(grid.box(int(new.chunks["chunk"][row])), positions)
        mine = members == member
        flats.append(flat[mine])
        values.append(bits[mine])
    return np.concatenate(flats), np.concatenate(values)


def _equal(pieces: Pieces, place: Place, first: tuple[Bits, Bits], second: tuple[Bits, Bits]) -> bool:
    """Whether both changes lead from what stands in memory to the same."""
    touched = np.union1d(first[0], second[0])
    before = bits_at(pieces, *place, touched)
    results = []
    for flat, bits in (first, second):
        after = before.copy()
        after[np.searchsorted(touched, flat)] = bits
        results.append(after)
    return bool((results[0] == results[1]).all())
