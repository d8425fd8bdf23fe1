"""The snapshot detector: compares live weights with a copy of what was last published.

It costs one copy of the model in memory and needs nothing of the optimizer. It is the fallback where the old
weights cannot be reconstructed, and the oracle that other detectors are tested against.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Self

import numpy as np

from deltastore.detect.difference import compare
from deltastore.format.table import TensorTable
from deltastore.kernels.cpu import apply
from deltastore.kernels.pieces import Piece, Pieces
from deltastore.kernels.rows import EncodedPatches
from deltastore.layout.weights import Weights, chunks_of

__all__ = ["Snapshot"]

Bits = np.ndarray[Any, Any]


class _Copy:
    """A model-sized copy of weights, one ndarray per array: the one place where that is the purpose."""

    def __init__(self, table: TensorTable) -> None:
        self.table = table
        self.arrays = [np.empty(array.grid.extent, array.element.storage) for array in table.arrays]
        self.pieces = Pieces(
            table.kernels,
            (
                Piece(number, member, (0,) * (copy.ndim - 1), copy[(member, ...)])
                for number, copy in enumerate(self.arrays)
                for member in range(len(copy))
            ),
        )

    async def read(self, array: int, chunk: int) -> Bits:
        box = self.table.arrays[array].grid.box(chunk)
        return self.arrays[array][box.slices]


class Snapshot:
    """Finds what changed in ``live`` since the last committed round, with ``threads`` threads.

    Between a round and its commit only its patches are kept beside the copy, so weights that move on
    meanwhile cannot leak into it.
    """

    name = "snapshot"

    def __init__(self, live: Weights, *, threads: int = 1) -> None:
        self._live = live
        self._threads = threads
        self._copy = _Copy(live.table)
        self._pending: list[EncodedPatches] = []

    @classmethod
    async def of(cls, live: Weights, *, threads: int = 1) -> Self:
        """A detector for which the weights as they are now count as published."""
        detector = cls(live, threads=threads)
        await detector.retake()
        return detector

    @property
    def published(self) -> Weights:
        """The copy."""
        return self._copy

    async def retake(self) -> None:
        """Copy the live weights as they are now."""
        async for array, _, box, bits in chunks_of(self._live):
            self._copy.arrays[array][box.slices] = bits

    async def changes(self) -> AsyncIterator[EncodedPatches]:
        """Everything that differs from the copy, in pack order."""
        self._pending = []
        async for patches in compare(self._live, self._copy, threads=self._threads):
            self._pending.append(patches)
            yield patches

    def committed(self) -> None:
        """Bring the copy up to the round that was published."""
        for patches in self._pending:
            apply(self._copy.pieces, patches.rows, patches.body, threads=self._threads)
        self._pending = []

    def aborted(self) -> None:
        """Forget the round; the copy still holds what is published."""
        self._pending = []
