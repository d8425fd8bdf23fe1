"""Weights: whatever can give the bits of any chunk. Trainers, checkpoints, anchors and versions are alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol, runtime_checkable

import numpy as np

from deltastore.format.digest import MODULUS
from deltastore.format.table import TensorTable
from deltastore.kernels.cpu import digest_chunks
from deltastore.kernels.grid import Box
from deltastore.kernels.pieces import Pieces
from deltastore.kernels.rows import ChunkList
from deltastore.layout.batches import HELD_BYTES, READ_BYTES, SPARSE_BYTES, Batches, chunks_in_order

__all__ = [
    "AnyWeights",
    "Bits",
    "HeldWeights",
    "Portion",
    "Weights",
    "batches_of",
    "chunks_of",
    "digest_of",
    "pieces_of",
]

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


@runtime_checkable
class Portion(Protocol):
    """Some elements of a model under a table: what one of several processes holds of it."""

    @property
    def table(self) -> TensorTable:
        """The tensors of the whole model and how they are cut."""
        ...

    @property
    def chunks(self) -> ChunkList:
        """The chunks of which elements are held, in pack order: ``(n,)`` of dtype ``CHUNK``."""
        ...

    @property
    def pieces(self) -> Pieces | None:
        """All elements held; None where something must be done to them first, and ``gather`` does it."""
        ...

    async def gather(self, chunks: ChunkList) -> Pieces:
        """What is held of ``chunks``, at least. Not to be written to."""
        ...


AnyWeights = Weights | Portion


async def chunks_of(weights: Weights) -> AsyncIterator[tuple[int, int, Box, Bits]]:
    """(array, chunk, box, bits) of every chunk in table order, one in memory at a time."""
    for number, array in enumerate(weights.table.arrays):
        for chunk, box in array.grid.boxes():
            yield number, chunk, box, await weights.read(number, chunk)


def batches_of(weights: AnyWeights, *others: AnyWeights) -> Batches:
    """Every chunk of ``weights`` in pack order, in batches for one call of a kernel over all of these."""
    held = all(isinstance(one, HeldWeights) and one.pieces is not None for one in (weights, *others))
    chunks = weights.chunks if isinstance(weights, Portion) else chunks_in_order(weights.table)
    least, most = (HELD_BYTES, SPARSE_BYTES) if held else (READ_BYTES, READ_BYTES)
    return Batches(weights.table, chunks, least, most)


async def pieces_of(weights: AnyWeights, chunks: ChunkList) -> Pieces:
    """Pieces that hold at least what ``weights`` do of ``chunks`` (n,)."""
    if isinstance(weights, Portion):
        return await weights.gather(chunks)
    if isinstance(weights, HeldWeights) and weights.pieces is not None:
        return weights.pieces
    read = [(array, chunk, await weights.read(array, chunk)) for array, chunk in chunks.tolist()]
    return Pieces.of_chunks(weights.table.kernels, read)


async def digest_of(weights: AnyWeights, *, threads: int = 1) -> int:
    """The digest of all elements held, mod 2**64; reads every element once, a few chunks at a time."""
    total = 0
    for chunks in batches_of(weights):
        digests = digest_chunks(await pieces_of(weights, chunks), chunks, threads=threads)
        total += int(digests.sum(dtype=np.uint64))
    return total % MODULUS
