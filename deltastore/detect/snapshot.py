"""The snapshot detector: compares live weights with a copy of what was last published.

It costs one copy of the model in memory and needs nothing of the optimizer. It is the fallback where the old
weights cannot be reconstructed, and the oracle that other detectors are tested against.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Self

import numpy as np

from deltastore.detect.changes import ChunkChange
from deltastore.detect.difference import compare
from deltastore.format.table import TensorTable
from deltastore.layout.weights import Weights, chunks_of

__all__ = ["Snapshot"]

Bits = np.ndarray[Any, Any]


class _Copy:
    """A model-sized copy of weights, one ndarray per array: the one place where that is the purpose."""

    def __init__(self, table: TensorTable) -> None:
        self.table = table
        self.arrays = [np.empty(array.grid.extent, array.element.storage) for array in table.arrays]

    async def read(self, array: int, chunk: int) -> Bits:
        box = self.table.arrays[array].grid.box(chunk)
        return self.arrays[array][box.slices]


class Snapshot:
    """Finds what changed in ``live`` since the last committed round.

    Between a round and its commit only the changed elements are kept beside the copy, so weights that move
    on meanwhile cannot leak into it.
    """

    name = "snapshot"

    def __init__(self, live: Weights) -> None:
        self._live = live
        self._copy = _Copy(live.table)
        self._pending: list[ChunkChange] = []

    @classmethod
    async def of(cls, live: Weights) -> Self:
        """A detector for which the weights as they are now count as published."""
        detector = cls(live)
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

    async def changes(self) -> AsyncIterator[ChunkChange]:
        """Every chunk that differs from the copy, in pack order."""
        self._pending = []
        async for change in compare(self._live, self._copy):
            self._pending.append(replace(change, old=change.old[:0], whole=None))
            yield change

    def committed(self) -> None:
        """Bring the copy up to the round that was published."""
        for change in self._pending:
            target = self._copy.arrays[change.array]
            places = np.unravel_index(change.positions, change.box.size)
            starts = change.box.start
            index = tuple(place + start for place, start in zip(places, starts, strict=True))
            target[index] = change.new
        self._pending = []

    def aborted(self) -> None:
        """Forget the round; the copy still holds what is published."""
        self._pending = []
