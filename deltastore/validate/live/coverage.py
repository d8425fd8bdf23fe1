"""Which share of a table several sources hold together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deltastore.layout.held import Held

__all__ = ["covered"]


def covered(sources: Sequence[Held]) -> int:
    """Elements of the table that any of ``sources`` holds, each counted once. Memory: a byte for each of a
    chunk's elements.
    """
    table = sources[0].table
    if any(held.everything for held in sources):
        return table.elements
    count = 0
    for array, chunk in np.unique(np.concatenate([held.chunks for held in sources])).tolist():
        mask = np.zeros(table.arrays[array].grid.box(chunk).size, np.bool_)
        for held in sources:
            if held.mark(array, chunk, mask):
                break
        count += int(np.count_nonzero(mask))
    return count
