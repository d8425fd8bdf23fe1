"""New bits that are worked out but not yet written: what the next delta finds instead of the live weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from deltastore.kernels.grid import Box
from deltastore.reader.targets import Targets

__all__ = ["PendingBits", "StagedPatch"]

Bits = np.ndarray[Any, Any]
Positions = np.ndarray[Any, np.dtype[np.uint32]]


@dataclass(frozen=True, slots=True)
class StagedPatch:
    """The new bits of one chunk: ``bits`` (k,) go to chunk-relative ``positions`` (k,) of ``box``."""

    array: int
    chunk: int
    box: Box
    positions: Positions
    bits: Bits


class PendingBits:
    """The patches of deltas in order, merged by chunk: each element once, with its last bits."""

    def __init__(self, targets: Targets, patches: Iterable[StagedPatch]) -> None:
        self._targets = targets
        self._found = {(patch.array, patch.chunk): patch for patch in patches}

    @property
    def patches(self) -> tuple[StagedPatch, ...]:
        """One patch for each chunk, positions ascending."""
        return tuple(self._found.values())

    def current(self, array: int, chunk: int, box: Box, positions: Positions) -> Bits:
        """What stands at ``positions`` once everything pending is written; a new array."""
        bits = self._targets.gather(array, box, positions)
        earlier = self._found.get((array, chunk))
        if earlier is not None:
            at = np.searchsorted(earlier.positions, positions)
            at[at == len(earlier.positions)] = 0
            known = earlier.positions[at] == positions
            bits[known] = earlier.bits[at[known]]
        return bits

    def put(self, patch: StagedPatch) -> None:
        """Add a patch; where it meets an earlier one its own bits stand."""
        earlier = self._found.get((patch.array, patch.chunk))
        positions, bits = patch.positions, patch.bits
        if earlier is not None:
            positions = np.concatenate([positions, earlier.positions])
            bits = np.concatenate([bits, earlier.bits])
        ascending, first = np.unique(positions, return_index=True)
        self._found[patch.array, patch.chunk] = StagedPatch(
            patch.array, patch.chunk, patch.box, ascending, bits[first]
        )
