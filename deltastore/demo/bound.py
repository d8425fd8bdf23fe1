"""The fewest bytes that a version could take, so that what it did take can be judged.

Positions are counted tensor by tensor in pieces of 2**20 elements, moves over the whole version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from deltastore.entropy import PIECE_ELEMENTS, position_bits, step_bits
from deltastore.kernels.reference.ordered import ordered, signed_step

__all__ = ["ALLOWED_RATIO", "FIXED_BYTES", "Bound", "lower_bound"]

ALLOWED_RATIO: Final = 1.25
"""A version may take this many times its bound, beside ``FIXED_BYTES``."""

FIXED_BYTES: Final = 2048
"""For the manifest, which does not grow with the model, and the header and index of a pack."""

_JUDGED_DENSITY: Final = (0.003, 0.03)

Bits = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Bound:
    """``changed`` of ``elements`` elements, and the bits that saying so takes at least."""

    elements: int
    changed: int
    position_bits: float
    step_bits: float

    @property
    def nbytes(self) -> float:
        """The bound in bytes."""
        return (self.position_bits + self.step_bits) / 8

    @property
    def judged(self) -> bool:
        """Whether the share of changed elements is one that the ratio is promised for: 0.3 to 3 %."""
        least, most = _JUDGED_DENSITY
        return least * self.elements <= self.changed <= most * self.elements

    def ratio(self, nbytes: int) -> float | None:
        """How many times the bound ``nbytes`` without ``FIXED_BYTES`` are; None where nothing changed."""
        return (nbytes - FIXED_BYTES) / self.nbytes if self.nbytes else None


def lower_bound(old: Mapping[str, Bits], new: Mapping[str, Bits]) -> Bound:
    """The bound for going from ``old`` to ``new``: tensor name -> BF16 bits, uint16, any shape."""
    elements = changed = 0
    positions = 0.0
    steps = []
    for name, before in old.items():
        before, after = before.reshape(-1), new[name].reshape(-1)
        for start in range(0, before.size, PIECE_ELEMENTS):
            piece = slice(start, start + PIECE_ELEMENTS)
            moved = before[piece] != after[piece]
            count = int(np.count_nonzero(moved))
            elements, changed = elements + moved.size, changed + count
            positions += position_bits(moved.size, count)
            origin, target = before[piece][moved], after[piece][moved]
            steps.append(signed_step(ordered(origin, floating=True), ordered(target, floating=True)))
    return Bound(elements, changed, positions, step_bits(np.concatenate(steps) if steps else np.empty(0)))
