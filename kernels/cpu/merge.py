"""Two sets of staged bits as one, in C++."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deltastore.kernels.cpu import _native
from deltastore.kernels.cpu.prepared import prepared_table
from deltastore.kernels.cpu.staged import layout_of, native_staged
from deltastore.kernels.pieces import KernelTable
from deltastore.kernels.rows import StagedBits, chunk_list, places_of
from deltastore.kernels.threads import checked_threads

__all__ = ["merge"]


def merge(
    table: KernelTable, first: StagedBits, second: StagedBits, *, threads: int = 1
) -> tuple[StagedBits, int]:
    """Both as one, chunks by ascending (array, chunk); an element of both has ``second``'s bits.

    The number returned says how many elements stand in both. ``threads`` live for the call; the GIL is
    released. O(n + chunks log chunks). Raises InputError ``bad_argument`` when positions do not ascend
    strictly or leave their chunk.
    """
    threads = checked_threads(threads)
    one, other = native_staged(table, first, threads), native_staged(table, second, threads)
    here, there = places_of(first.chunks), places_of(second.chunks)
    places = np.unique(np.concatenate([here, there]))
    of_first, of_second = _entries(places, here), _entries(places, there)
    counts = np.zeros(len(places), np.int64)
    overlaps = _native.count_merged(one, other, of_first, of_second, counts, threads)
    chunks = chunk_list(places >> np.uint64(32), places & np.uint64(0xFFFFFFFF))
    starts, offsets = layout_of(table, chunks["array"], counts)
    positions, bits = np.empty(starts[-1], np.uint32), np.empty(offsets[-1], np.uint8)
    _native.merge(
        prepared_table(table), one, other, of_first, of_second, starts, offsets, positions, bits, threads
    )
    return StagedBits(chunks, starts, positions, offsets, bits), overlaps


def _entries(places: NDArray[np.uint64], known: NDArray[np.uint64]) -> NDArray[np.int64]:
    entries = np.full(len(places), -1, np.int64)
    entries[np.searchsorted(places, known)] = np.arange(len(known))
    return entries
