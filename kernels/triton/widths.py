"""Which residue widths make each patch smallest: the choice of the reference, for many chunks at once."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from deltastore.kernels.reference.patch import WIDTHS

__all__ = ["Choice", "best_low_bits", "chosen_widths"]

Integers = NDArray[np.int64]

_HEADER: Final = 4
_RUN_HEADER: Final = 8
_OPTIONS: Final = [option for size in range(1, 7) for option in combinations(range(6), size)]
"""Sets of widths by their index in WIDTHS: those of fewest runs first, then in order."""


@dataclass(frozen=True, slots=True)
class Choice:
    """For each of n patches: ``size`` bytes (n,), ``runs`` (n,), and for run r of each the columns r of
    ``above`` and ``upto`` (n, 6): it holds the elements whose needed width is one of
    ``WIDTHS[above:upto]``. Of columns at or above ``runs`` nothing is said.
    """

    size: Integers
    runs: Integers
    above: Integers
    upto: Integers


def chosen_widths(fits: Integers, elements: Integers) -> Choice:
    """The sets of widths that the reference takes. ``fits`` (n, 7): how many elements of a patch fit each of
    the first 0 to 6 widths, at least one in all; ``elements`` (n,): those of its chunk.
    """
    sizes = {
        (low, high): _run_bytes(fits, elements, low, high) for high in range(1, 7) for low in range(high)
    }
    total = fits[:, 6]
    best = np.full(len(fits), np.iinfo(np.int64).max)
    chosen = np.zeros(len(fits), np.int64)
    for number, option in enumerate(_OPTIONS):
        size = np.full(len(fits), _HEADER, np.int64)
        possible = (fits[:, option[-1] + 1] == total) & (fits[:, option[-1]] < total)
        low = 0
        for width in option:
            possible &= fits[:, width + 1] > fits[:, low]
            size += sizes[low, width + 1]
            low = width + 1
        better = possible & (size < best)
        best[better], chosen[better] = size[better], number
    return Choice(best, _RUNS[chosen], _ABOVE[chosen], _UPTO[chosen])


_RUNS: Final = np.array([len(option) for option in _OPTIONS], np.int64)
_UPTO: Final = np.array(
    [[*(w + 1 for w in option), *[6] * (6 - len(option))] for option in _OPTIONS], np.int64
)
_ABOVE: Final = np.concatenate([np.zeros((len(_OPTIONS), 1), np.int64), _UPTO[:, :-1]], axis=1)


def _words(bits: Integers) -> Integers:
    return -(-bits // 32)


def _run_bytes(fits: Integers, elements: Integers, low: int, high: int) -> Integers:
    count = np.maximum(fits[:, high] - fits[:, low], 1)
    residues = _words(count * WIDTHS[high - 1]) * 4
    return _RUN_HEADER + _position_bytes(count, elements, best_low_bits(count, elements)) + residues


def _position_bytes(count: Integers, elements: Integers, low_bits: Integers) -> Integers:
    return (_words(count * low_bits) + _words(count + ((elements - 1) >> low_bits))) * 4


def best_low_bits(count: Integers, elements: Integers) -> Integers:
    """The reference's L for ``count`` of ``elements`` positions, both (n,)."""
    near = np.frexp((elements // count).astype(np.float64))[1].astype(np.int64) - 1
    best = np.full(len(count), np.iinfo(np.int64).max)
    chosen = np.zeros(len(count), np.int64)
    for distance in (-2, -1, 0, 1):
        low_bits = np.maximum(near + distance, 0)
        size = _position_bytes(count, elements, low_bits)
        better = size < best
        best[better], chosen[better] = size[better], low_bits[better]
    return np.where(count + elements - 1 <= 32, 0, chosen)
