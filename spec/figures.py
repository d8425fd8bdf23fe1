"""What positions cost in the encodings that could have been chosen: the figures of SPEC.md's rationale.

``python -m spec.figures`` prints them. Positions are drawn evenly, by a seed, in one chunk of 2^20 elements.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["figures"]

N: Final = 2**20
SHARES: Final = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3)

Positions = npt.NDArray[np.int64]


def words(bits: int) -> int:
    """Bits of a section of so many."""
    return -(-bits // 32) * 32


def entropy(k: int) -> float:
    """Bits that k of N positions take at least: log2 of the number of ways to choose them."""
    choose = math.lgamma(N + 1) - math.lgamma(k + 1) - math.lgamma(N - k + 1)
    return choose / math.log(2)


def elias_fano(k: int) -> int:
    """SPEC 9.1: low and high section, with the best L."""
    return min(words(k * low) + words(k + (N - 1 >> low)) for low in range(20))


def rice(positions: Positions) -> int:
    """Each gap in unary above its lowest r bits, with the best r: smaller, but decoded one after another."""
    gaps = np.diff(positions, prepend=-1) - 1
    return min(int((gaps >> r).sum()) + len(gaps) * (1 + r) for r in range(20))


def varint(positions: Positions) -> int:
    """Each gap in bytes of seven bits."""
    gaps = np.diff(positions, prepend=-1) - 1
    return int(8 * (1 + (gaps >= 2**7) + (gaps >= 2**14)).sum())


def figures() -> str:
    """The table, as it stands in SPEC.md."""
    heads = ("share", "bound", "Elias-Fano", "over", "Rice", "varint", "20 bits", "32 bits", "bitmap")
    rows = [heads, *map(_row, SHARES)]
    return "\n".join(
        "  ".join(f"{cell:>{len(head)}}" for cell, head in zip(row, heads, strict=True)) for row in rows
    )


def _row(share: float) -> tuple[str, ...]:
    k = round(N * share)
    rng = np.random.default_rng(k)
    positions: Positions = np.sort(rng.choice(N, k, replace=False)).astype(np.int64)
    bound = entropy(k) / k
    bits: list[Any] = [elias_fano(k), rice(positions), varint(positions), 20 * k, 32 * k, N]
    mine, others = bits[0] / k, [f"{one / k:.2f}" for one in bits[1:]]
    return (f"{share:.1%}", f"{bound:.2f}", f"{mine:.2f}", f"{mine / bound:.3f}", *others)


if __name__ == "__main__":
    print(figures())
