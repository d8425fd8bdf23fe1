"""Weights that say how far reading them has come."""

from __future__ import annotations

from collections.abc import Callable

from deltastore.format.table import TensorTable
from deltastore.layout.weights import Bits, Weights

__all__ = ["Progress", "WatchedWeights"]

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""


class WatchedWeights:
    """The same weights; ``progress`` is called after every chunk read.

    ``passes``: how often all of them will be read, which makes up the bytes in all.
    """

    def __init__(self, weights: Weights, progress: Progress | None, *, passes: int = 1) -> None:
        self._weights = weights
        self._progress = progress
        self._total = weights.table.nbytes * passes
        self._done = 0

    @property
    def table(self) -> TensorTable:
        """The tensors and how they are cut."""
        return self._weights.table

    async def read(self, array: int, chunk: int) -> Bits:
        """One chunk, as the watched weights give it."""
        bits = await self._weights.read(array, chunk)
        self._done += bits.nbytes
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)
        return bits
