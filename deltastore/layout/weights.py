"""Weights: whatever can give the bits of any chunk. Trainers, checkpoints, anchors and versions are alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np

from deltastore.format.digest import MODULUS
from deltastore.format.table import TensorTable
from deltastore.kernels.cpu import digest_chunks
from deltastore.kernels.grid import Box
from deltastore.kernels.pieces import Pieces
from deltastore.kernels.rows import ChunkList
from deltastore.layout.batches import HELD_BYTES, READ_BYTES, chunk_batches

__all__ = ["Bits", "HeldWeights", "Weights", "batches_of", "chunks_of", "digest_of", "pieces_of"]

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


@runtime_checkable
class HeldWeights(Protocol):
    """Weights that stand in memory as they are, where kernels can take them."""

    @property
    def pieces(self) -> Pieces | None:
        """All elements; None where something must be done to them first, and ``read`` does it."""
        ...


async def chunks_of(weights: Weights) -> AsyncIterator[tuple[int, int, Box, Bits]]:
    """(array, chunk, box, bits) of every chunk in table order, one in memory at a time."""
    for number, array in enumerate(weights.table.arrays):
        for chunk, box in array.grid.boxes():
            yield number, chunk, box, await weights.read(number, chunk)


def batches_of(weights: Weights, *others: Weights) -> Iterator[ChunkList]:
    """Every chunk in pack order, in batches for one call of a kernel over all of these weights."""
    held = all(isinstance(one, HeldWeights) and one.pieces is not None for one in (weights, *others))
    return chunk_batches(weights.table, HELD_BYTES if held else READ_BYTES)


async def pieces_of(weights: Weights, chunks: ChunkList) -> Pieces:
    """Pieces that hold at least ``chunks`` (n,): of weights in memory, else of chunks as they are read."""
    if isinstance(weights, HeldWeights) and weights.pieces is not None:
        return weights.pieces
    read = [(array, chunk, await weights.read(array, chunk)) for array, chunk in chunks.tolist()]
    return Pieces.of_chunks(weights.table.kernels, read)


async def digest_of(weights: Weights, *, threads: int = 1) -> int:
    """The digest of the whole model, mod 2**64; reads every element once, a few chunks at a time."""
    total = 0
    for chunks in batches_of(weights):
        digests = digest_chunks(await pieces_of(weights, chunks), chunks, threads=threads)
        total += int(digests.sum(dtype=np.uint64))
    return total % MODULUS
