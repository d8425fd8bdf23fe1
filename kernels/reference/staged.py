"""Building and reading ``StagedBits`` chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import InputError
from deltastore.kernels.pieces import KernelTable
from deltastore.kernels.rows import StagedBits, chunk_list

__all__ = ["merge", "staged", "staged_chunks"]

Bits = np.ndarray[Any, Any]
Chunk = tuple[int, int]
Change = tuple[NDArray[np.uint32], Bits]


def staged(changes: Sequence[tuple[Chunk, Change]]) -> StagedBits:
    """``((array, chunk), (positions, bits))`` of distinct chunks, one after another."""
    starts = np.cumsum([0, *(len(positions) for _, (positions, _) in changes)], dtype=np.int64)
    padded = [bits.tobytes().ljust(-(-bits.nbytes // 8) * 8, b"\0") for _, (_, bits) in changes]
    return StagedBits(
        chunks=chunk_list([array for (array, _), _ in changes], [chunk for (_, chunk), _ in changes]),
        starts=starts,
        positions=np.concatenate([np.zeros(0, np.uint32), *(positions for _, (positions, _) in changes)]),
        offsets=np.cumsum([0, *map(len, padded)], dtype=np.int64),
        bits=np.frombuffer(b"".join(padded), np.uint8),
    )


def staged_chunks(table: KernelTable, source: StagedBits) -> Iterator[tuple[Chunk, Change]]:
    """The inverse of ``staged``.

    Raises InputError ``bad_argument`` when positions do not ascend strictly or leave their chunk.
    """
    for number, (array, chunk) in enumerate(source.chunks.tolist()):
        positions = source.positions[source.starts[number] : source.starts[number + 1]]
        elements = table.arrays[array].grid.box(chunk).elements
        ascending = bool((np.diff(positions.astype(np.int64)) > 0).all())
        if not ascending or (len(positions) and int(positions[-1]) >= elements):
            place = f"the bits staged for chunk {chunk} of array {array}"
            raise InputError("bad_argument", f"{place}: positions do not ascend in it")
        storage = table.arrays[array].storage
        at = int(source.offsets[number])
        yield (
            (array, chunk),
            (positions, source.bits[at : at + len(positions) * storage.itemsize].view(storage)),
        )


def merge(table: KernelTable, first: StagedBits, second: StagedBits) -> tuple[StagedBits, int]:
    """Both as one, chunks by ascending (array, chunk); an element of both has ``second``'s bits.

    Each holds a chunk once at most. The number returned says how many elements stand in both. Raises
    InputError ``bad_argument`` when positions do not ascend strictly or leave their chunk. O(n log n).
    """
    found = dict(staged_chunks(table, first))
    overlaps = 0
    for place, (positions, bits) in staged_chunks(table, second):
        if place in found:
            overlaps += len(np.intersect1d(positions, found[place][0], assume_unique=True))
            positions = np.concatenate([positions, found[place][0]])
            positions, chosen = np.unique(positions, return_index=True)
            bits = np.concatenate([bits, found[place][1]])[chosen]
        found[place] = (positions, bits)
    return staged(sorted(found.items(), key=lambda entry: entry[0])), overlaps
