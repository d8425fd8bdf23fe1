"""Tables and pieces as the compiled kernels hold them: made once, kept with the Python object."""

from __future__ import annotations

from typing import Any

import numpy as np

from deltastore.errors import InputError
from deltastore.kernels.cpu import _native
from deltastore.kernels.pieces import KernelTable, Piece, Pieces

__all__ = ["prepared_pieces", "prepared_table"]

_TABLE = "cpu"
_SEEDED = "cpu with seeds"


def prepared_table(table: KernelTable, *, seeds: bool = False) -> _native.Table:
    """The compiled form of a table; ``seeds`` says that the kernel needs those of every member."""
    native: _native.Table | None = table.prepared.get(_TABLE)
    if native is None:
        native = _native.Table()
        for array in table.arrays:
            native.add(list(array.grid.extent), list(array.grid.chunk), array.itemsize, array.floating)
        # Two threads may come here at once; both then go on with one table.
        native = table.prepared.setdefault(_TABLE, native)
    if seeds and _SEEDED not in table.prepared:
        for number in range(len(table.arrays)):
            native.set_seeds(number, table.seeds(number))
        table.prepared[_SEEDED] = True
    return native


def prepared_pieces(pieces: Pieces, *, seeds: bool = False) -> _native.Pieces:
    """The compiled form of pieces, over that of their table."""
    table = prepared_table(pieces.table, seeds=seeds)
    native: _native.Pieces | None = pieces.prepared.get(_TABLE)
    if native is None:
        native = _native.Pieces(table)
        for piece in pieces.pieces:
            native.add(
                piece.array, piece.member, list(piece.lo), list(piece.size), _strides(piece), _address(piece)
            )
        native.finish()
        native = pieces.prepared.setdefault(_TABLE, native)
    return native


def _strides(piece: Piece) -> list[int]:
    if not isinstance(piece.view, np.ndarray):
        kind = type(piece.view).__name__
        raise InputError("wrong_memory", f"kernels of the CPU take pieces of NumPy arrays, not of a {kind}")
    return list(piece.view.strides)


def _address(piece: Piece) -> int:
    interface: dict[str, Any] = piece.view.__array_interface__
    address: int = interface["data"][0]
    return address
