"""Chunks of one array as they stand in fetched bytes of a shard (SPEC section "Anchors")."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.anchors.shard_rules import chunk_view
from deltastore.anchors.sharding import ShardGrid
from deltastore.format.table import Array
from deltastore.layout.weights import Bits

__all__ = ["StoredChunks"]


@dataclass(frozen=True, slots=True)
class StoredChunks:
    """Checked chunks ``numbers`` (k,) of array ``number``, ascending; all arrays int64.

    Chunk i starts at byte ``offsets[i]`` of ``parts[held[i]]``, in which it stands without being cut short.
    """

    number: int
    array: Array
    grid: ShardGrid
    numbers: NDArray[np.int64]
    parts: Sequence[bytes]
    held: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def view(self, at: int) -> Bits:
        """The elements of chunk ``numbers[at]``, shape ``box.size``: a read-only view."""
        part, offset = self.parts[int(self.held[at])], int(self.offsets[at])
        return chunk_view(part, offset, int(self.numbers[at]), self.grid, self.array)

    def views(self) -> Iterator[tuple[int, int, Bits]]:
        """(array, chunk, bits) of each."""
        for at, chunk in enumerate(self.numbers.tolist()):
            yield self.number, chunk, self.view(at)

    def gathered(self, part: int, chosen: NDArray[np.int64]) -> NDArray[Any]:
        """A copy of ``chosen`` ones of a part, whole: (len(chosen), *chunk)."""
        shape, storage = self.grid.chunks.chunk, self.array.element.storage
        data, nbytes = self.parts[part], math.prod(shape) * storage.itemsize
        # One item per chunk that starts at any byte, so that a chunk is copied at a time.
        anywhere: NDArray[Any] = np.ndarray((len(data) - nbytes + 1,), f"V{nbytes}", data, strides=(1,))
        return anywhere[self.offsets[chosen]].view(storage).reshape(len(chosen), *shape)
