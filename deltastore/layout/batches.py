"""Many chunks for one call of a kernel: few enough that they can be in memory together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from deltastore.format.table import TensorTable
from deltastore.kernels.rows import ChunkList, chunk_list

__all__ = ["HELD_BYTES", "READ_BYTES", "chunk_batches"]

HELD_BYTES: Final = 128 << 20
"""Of weights that stand in memory anyway: what a call makes of them is at worst as large."""

READ_BYTES: Final = 4 << 20
"""Of weights that are read into memory for the call: reading them takes far longer than the call does."""


def chunk_batches(table: TensorTable, nbytes: int) -> Iterator[ChunkList]:
    """Every chunk of the table in pack order, in batches of about ``nbytes`` of elements."""
    order = table.chunk_order()
    chunks = chunk_list(order[:, 1], order[:, 2])
    sizes = np.zeros(len(chunks), np.int64)
    for number, array in enumerate(table.arrays):
        mine = chunks["array"] == number
        sizes[mine] = array.grid.elements(chunks["chunk"][mine]) * array.element.itemsize
    ends = np.cumsum(sizes)
    start = 0
    while start < len(chunks):
        before = int(ends[start - 1]) if start else 0
        end = max(int(np.searchsorted(ends, before + nbytes, "right")), start + 1)
        yield chunks[start:end]
        start = end
