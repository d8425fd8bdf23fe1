"""Copies of the parts of which nothing else can say what they were."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from deltastore.detect.batch import BatchBox
from deltastore.layout.live_parts import LiveParts
from deltastore.layout.parts import slices_at

__all__ = ["KeptParts"]

Bits = np.ndarray[Any, Any]


class KeptParts:
    """The bits of some parts of ``live``, as they were at the last moment that was looked at."""

    def __init__(self, live: LiveParts) -> None:
        self._live = live
        self._copies: dict[int, Bits] = {}

    def keep(self, parts: Iterable[int]) -> None:
        """From now on these too; their bits are those of now."""
        storages = [array.element.storage for array in self._live.table.arrays]
        for part in parts:
            if part not in self._copies:
                box = self._live.parts[part].box
                self._copies[part] = np.empty(box.size, storages[box.array])
                self._take(part)

    def of(self, of: BatchBox) -> Bits | None:
        """The bits of a box, in its shape; None where its part is not kept."""
        copy = self._copies.get(of.part)
        if copy is None:
            return None
        bits: Bits = copy[slices_at(of.box.lo, of.box.size, self._live.parts[of.part].box.lo)]
        return bits

    def retake(self) -> None:
        """Copy what is there now."""
        for part in self._copies:
            self._take(part)

    def _take(self, part: int) -> None:
        self._live.parts[part].copy_to(self._copies[part])
