"""Weights: whatever can give the bits of any chunk. Trainers, checkpoints, anchors and versions are alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol

import numpy as np

from deltastore.format.digest import MODULUS, Digester
from deltastore.format.table import TensorTable
from deltastore.kernels.grid import Box

__all__ = ["Bits", "Weights", "chunks_of", "digest_of"]

Bits = np.ndarray[Any, Any]


class Weights(Protocol):
    """The bits of a whole model under a table, one chunk at a time."""

    @property
    def table(self) -> TensorTable:
        """The tensors and how they are cut."""
        ...

    async def read(self, array: int, chunk: int) -> Bits:
        """The elements of one chunk: shape ``box.size``, little-endian unsigned of the element's width.

        Not to be written to: it may be a view of live memory or of a cache.
        """
        ...


async def chunks_of(weights: Weights) -> AsyncIterator[tuple[int, int, Box, Bits]]:
    """(array, chunk, box, bits) of every chunk in table order, one in memory at a time."""
    for number, array in enumerate(weights.table.arrays):
        for chunk, box in array.grid.boxes():
            yield number, chunk, box, await weights.read(number, chunk)


async def digest_of(weights: Weights) -> int:
    """The digest of the whole model, mod 2**64; reads every element once."""
    digester = Digester(weights.table)
    total = 0
    async for array, _, box, bits in chunks_of(weights):
        total += digester.chunk(array, box, bits)
    return total % MODULUS
