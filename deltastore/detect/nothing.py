"""Weights that are all zero bits: what parts of a model are compared with when it has to be stored whole."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from deltastore.format.table import TensorTable
from deltastore.kernels.pieces import Piece, Pieces

__all__ = ["NoWeights"]

Bits = np.ndarray[Any, Any]


class NoWeights:
    """Zero bits for every element of ``table``; no memory of its own."""

    def __init__(self, table: TensorTable) -> None:
        self._table = table

    @property
    def table(self) -> TensorTable:
        """The tensors and how they are cut."""
        return self._table

    @cached_property
    def pieces(self) -> Pieces:
        """Every tensor as one zero that is repeated."""
        return Pieces(
            self._table.kernels,
            (
                Piece(
                    number,
                    member,
                    (0,) * len(array.shape),
                    np.broadcast_to(np.zeros((), array.element.storage), array.shape),
                )
                for number, array in enumerate(self._table.arrays)
                for member in range(array.count)
            ),
        )

    async def read(self, array: int, chunk: int) -> Bits:
        """Zeros in the shape of the chunk's box, to be written to."""
        held = self._table.arrays[array]
        return np.zeros(held.grid.box(chunk).size, held.element.storage)
