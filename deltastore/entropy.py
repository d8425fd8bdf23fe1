"""The least that a change could take: the entropy of which elements changed, and of how far each moved.

A version changed k of n elements. Saying which ones costs n·H(k/n) bits where positions are spread evenly, H
being the binary entropy; saying how far each moved costs the entropy of the moves that occurred, counted in
representable values (SPEC section "Ordered integers"). Positions are counted tensor by tensor in pieces of
``PIECE_ELEMENTS``.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import log2
from typing import Any, Final

import numpy as np

__all__ = ["PIECE_ELEMENTS", "count_bits", "position_bits", "position_bits_of", "step_bits"]

PIECE_ELEMENTS: Final = 1 << 20

Bits = np.ndarray[Any, Any]


def position_bits(elements: int, changed: int) -> float:
    """n·H(k/n): what it takes to say which ``changed`` of ``elements`` elements, spread evenly."""
    return _surprise(changed, elements) + _surprise(elements - changed, elements)


def position_bits_of(elements: Bits, changed: Bits) -> float:
    """The sum of ``position_bits`` over many pieces: integers, of shapes that broadcast."""
    whole, some = np.broadcast_arrays(elements.astype(np.float64), changed.astype(np.float64))
    partly = (some > 0) & (some < whole)
    n, k = whole[partly], some[partly]
    return float((k * np.log2(n / k) + (n - k) * np.log2(n / (n - k))).sum())


def step_bits(steps: Bits) -> float:
    """k times the entropy of how often each value occurs among ``steps`` (integers, shape (k,))."""
    return count_bits(np.unique(steps, return_counts=True)[1].tolist())


def count_bits(counts: Iterable[int]) -> float:
    """The same, of values that occur so many times each."""
    known = list(counts)
    total = sum(known)
    return sum(_surprise(count, total) for count in known)


def _surprise(count: int, total: int) -> float:
    return count * log2(total / count) if count else 0.0
