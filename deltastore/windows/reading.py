"""Any chunk of one version, where most are asked for in order."""

from __future__ import annotations

from typing import Any

import numpy as np

from deltastore.format.table import TensorTable
from deltastore.windows.walk import Walk, Watch

__all__ = ["WindowedWeights"]

Bits = np.ndarray[Any, Any]


class WindowedWeights:
    """What stands in buffer 0 at the end of ``walk``, as ``Weights``. Memory: the window last read.

    A chunk of another window carries that through all versions: ask for chunks in order. ``close`` it.
    """

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._lasts = np.array([window.last for window in walk.windows], np.uint64)
        self._held = -1
        self._chunks: dict[tuple[int, int], Bits] = {}

    @property
    def table(self) -> TensorTable:
        """The version's table."""
        return self._walk.table

    async def read(self, array: int, chunk: int) -> Bits:
        """A chunk that the walk has. Raises what ``Walk.over`` does."""
        number = int(np.searchsorted(self._lasts, np.uint64((array << 32) | chunk)))
        if number != self._held:
            self._held, self._chunks = -1, {}
            self._chunks = (await self._walk.over(number, Watch()))[0].chunks
            self._held = number
        return self._chunks[array, chunk]

    def close(self) -> None:
        """Give temporary files back."""
        self._walk.close()
