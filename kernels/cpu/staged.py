"""``StagedBits`` as the compiled kernels take them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import InputError
from deltastore.kernels.cpu import _native
from deltastore.kernels.cpu.prepared import prepared_table
from deltastore.kernels.pieces import KernelTable
from deltastore.kernels.rows import CHUNK, StagedBits

__all__ = ["layout_of", "native_staged"]


def native_staged(table: KernelTable, source: StagedBits, threads: int) -> _native.Staged:
    """The compiled form, over the same memory, after every check.

    Raises InputError ``bad_argument`` when positions do not ascend strictly or leave their chunk, a chunk is
    not the table's, or the lists do not fit each other.
    """
    count = len(source.chunks)
    if source.starts.shape != (count + 1,) or source.offsets.shape != (count + 1,):
        raise InputError(
            "bad_argument",
            f"{count} chunks with starts of shape {source.starts.shape} and offsets of shape "
            f"{source.offsets.shape}; give one more of both",
        )
    native = _native.Staged(
        np.ascontiguousarray(source.chunks, CHUNK).view(np.uint8),
        np.ascontiguousarray(source.starts, np.int64),
        np.ascontiguousarray(source.positions, np.uint32),
        np.ascontiguousarray(source.offsets, np.int64),
        np.ascontiguousarray(source.bits, np.uint8),
    )
    bad = native.first_bad(prepared_table(table), threads)
    if bad < count:
        array, chunk = source.chunks[bad].tolist()
        place = f"the bits staged for chunk {chunk} of array {array}"
        problem = "no such chunk, lists that do not fit each other, or positions that do not ascend in it"
        raise InputError("bad_argument", f"{place}: {problem}")
    return native


def layout_of(
    table: KernelTable, arrays: NDArray[Any], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts and offsets of staged bits: ``counts[r]`` elements of array ``arrays[r]``, one after another.

    An array number that the table has not is taken for one without elements.
    """
    itemsizes = np.array([array.itemsize for array in table.arrays] + [0], np.int64)
    bytes_of = counts * itemsizes[np.minimum(arrays, len(table.arrays))]
    ends = [np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)]
    offsets = [np.zeros(1, np.int64), np.cumsum((bytes_of + 7) & ~7, dtype=np.int64)]
    return np.concatenate(ends), np.concatenate(offsets)
