"""What every detector yields, and when it may move on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from deltastore.kernels.grid import Box

__all__ = ["ChunkChange", "Detector"]

Bits = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class ChunkChange:
    """The changed elements of one chunk.

    ``positions`` (k,) uint32, ascending, k >= 1; ``old`` and ``new`` (k,) unsigned bits; ``whole`` all new
    bits of the chunk in the shape of ``box``, or None where the detector does not own all of it.
    """

    slab: int
    array: int
    chunk: int
    box: Box
    positions: np.ndarray[Any, np.dtype[np.uint32]]
    old: Bits
    new: Bits
    whole: Bits | None


class Detector(Protocol):
    """Yields the changes since the version that was last committed through it, in pack order.

    After a round of ``changes`` comes exactly one of ``committed`` (the record was read back or its
    creation acknowledged) and ``aborted``; after ``aborted`` the same changes are found again.
    """

    @property
    def name(self) -> str:
        """What a manifest's statistics call it."""
        ...

    def changes(self) -> AsyncIterator[ChunkChange]:
        """One round of detection."""
        ...

    def committed(self) -> None:
        """What the last round found is now published."""
        ...

    def aborted(self) -> None:
        """What the last round found was not published."""
        ...
