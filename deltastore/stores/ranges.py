"""Byte ranges of one object: which of them to fetch together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["coalesced"]

Range = tuple[int, int]


def coalesced(
    starts: NDArray[np.int64], ends: NDArray[np.int64], *, gap: int, most: int | None = None
) -> Sequence[Range]:
    """Ranges (start, end) that cover all of ``[starts, ends)``, which ascend and do not overlap.

    Two are one where at most ``gap`` bytes lie between them. Above ``most`` ranges, those that the fewest
    bytes keep apart are one too.
    """
    if not len(starts):
        return []
    gaps = starts[1:] - ends[:-1]
    apart = np.flatnonzero(gaps > gap)
    if most is not None and len(apart) >= most:
        widest = np.argsort(-gaps[apart], kind="stable")[: most - 1]
        apart = np.sort(apart[widest])
    firsts = np.concatenate([starts[:1], starts[apart + 1]])
    lasts = np.concatenate([ends[apart], ends[-1:]])
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))
