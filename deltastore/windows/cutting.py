"""Windows: consecutive chunks of an anchor, few enough that their weights can be in memory several times."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from deltastore.anchors.sharding import ShardGrid
from deltastore.format.table import TensorTable
from deltastore.kernels.rows import ChunkList, chunk_list, places_of

__all__ = ["Window", "windows_of"]

PIECES: Final = 1 << 14
"""Most pieces of a window, of which each tensor that a chunk spans is one."""

_UNIT: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Window:
    """Chunks (n,) of dtype ``CHUNK``, ascending by array and chunk; ``nbytes`` of elements."""

    chunks: ChunkList
    nbytes: int

    @property
    def last(self) -> int:
        """The place of its last chunk, as ``places_of`` numbers them."""
        return int(places_of(self.chunks[-1:])[0])


def windows_of(
    table: TensorTable, grids: Sequence[ShardGrid], chunks: ChunkList | None, nbytes: int
) -> list[Window]:
    """``chunks`` (None: all of the table) in windows of at most ``nbytes`` of elements, or one chunk.

    A shard of ``grids`` that fits is not cut, so that it is fetched once.
    """
    parts = [
        _costs(table, grids[number], number, mine, nbytes)
        for number, mine in _by_array(table, chunks)
        if len(mine)
    ]
    if not parts:
        return []
    listed, sizes, costs, shards = (np.concatenate([part[at] for part in parts]) for at in range(4))
    apart = (np.diff(listed["array"].astype(np.int64)) != 0) | (np.diff(shards) != 0)
    runs = [0, *(np.flatnonzero(apart) + 1).tolist(), len(listed)]
    cuts = _cut(costs, runs)
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    return [
        Window(listed[start:end], int(before[end] - before[start]))
        for start, end in itertools.pairwise([*cuts, len(listed)])
    ]


def _by_array(table: TensorTable, chunks: ChunkList | None) -> list[tuple[int, NDArray[np.int64]]]:
    if chunks is None:
        return [(at, np.arange(len(one.grid), dtype=np.int64)) for at, one in enumerate(table.arrays)]
    order = np.sort(places_of(chunks))
    arrays, numbers = (
        (order >> np.uint64(32)).astype(np.int64),
        (order & np.uint64(0xFFFFFFFF)).astype(np.int64),
    )
    found, starts = np.unique(arrays, return_index=True)
    return list(zip(found.tolist(), np.split(numbers, starts[1:]), strict=True)) if len(found) else []


def _costs(
    table: TensorTable, grid: ShardGrid, array: int, chunks: NDArray[np.int64], nbytes: int
) -> tuple[ChunkList, NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Chunks, their bytes, what part of a window each takes, and the number of its shard: (n,) each."""
    form = table.arrays[array]
    sizes = form.grid.elements(chunks) * form.element.itemsize
    first = form.grid.coordinate_along(chunks, 0) * form.grid.chunk[0]
    pieces = np.minimum(form.grid.chunk[0], form.grid.extent[0] - first)
    costs = np.maximum(-(-sizes * _UNIT // nbytes), -(-pieces * _UNIT // PIECES))
    return chunk_list(np.full(len(chunks), array), chunks), sizes, costs, grid.holders(chunks)


def _cut(costs: NDArray[np.int64], runs: Sequence[int]) -> list[int]:
    """Where windows start: at the start of a run (of one shard) unless the run alone is too much."""
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(costs)])
    cuts = [0]
    for start, end in itertools.pairwise(runs):
        if before[end] - before[cuts[-1]] > _UNIT and start > cuts[-1]:
            cuts.append(start)
        while before[end] - before[cuts[-1]] > _UNIT:
            fits = int(np.searchsorted(before, before[cuts[-1]] + _UNIT, "right")) - 1
            cut = max(fits, cuts[-1] + 1)
            if cut >= end:
                break
            cuts.append(cut)
    return cuts
