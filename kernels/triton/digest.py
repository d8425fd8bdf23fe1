"""The digest of chunks of weights on the device (SPEC section "Digest").

Two kernels. ``digest_flat_kernel`` takes a window that is a contiguous range of its tensor, as nearly all
are: it goes through whole blocks of 2048, so T stands in registers and a block's factor is multiplied once
for eight elements. ``digest_box_kernel`` takes any window, in the order of memory: a sum has no order.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from deltastore.errors import InputError
from deltastore.kernels.pieces import KernelTable, Pieces
from deltastore.kernels.rows import ChunkList
from deltastore.kernels.triton.element import pointers
from deltastore.kernels.triton.runs import itemsizes_of, task_ranges
from deltastore.kernels.triton.tables import (
    AXIS_FLAT,
    AXIS_SIZE,
    AXIS_STRIDE,
    AXIS_WIDTH,
    ELEMENT_TYPES,
    WINDOW_ADDRESS,
    WINDOW_AXES,
    WINDOW_ELEMENTS,
    WINDOW_FIRST_AXIS,
    WINDOW_FLAT,
    WINDOW_SEED,
    WINDOW_WIDTH,
)
from deltastore.kernels.triton.upload import Staged, current_device
from deltastore.kernels.triton.weights import block_weight, weight_table, weights_at
from deltastore.kernels.triton.windows import Windows, device_of, windows_of

__all__ = ["check_chunks", "digest_box_kernel", "digest_chunks", "digest_flat_kernel", "flat_windows"]

BLOCK = tl.constexpr(2048)
STEPS = tl.constexpr(8)
"""Blocks of 2048 elements that one program sums."""

LANES = tl.constexpr(1024)
"""Elements that a program takes at a time where T does not stand in registers."""

TASK_WIDTH = tl.constexpr(3)  # window, part of it, chunk of the list

_VECTOR: Final = 16
"""Bytes of the widest load: blocks that start at a multiple of it are read so."""


@triton.jit(do_not_specialize=["first"])
def digest_flat_kernel(
    tasks: tl.tensor,
    windows: tl.tensor,
    weights: tl.tensor,
    digests: tl.tensor,
    first: tl.tensor,
    narrow: tl.constexpr,
    itemsize: tl.constexpr,
) -> None:
    """``digests[chunk] +=`` the digest of eight blocks of a contiguous window."""
    task = tasks + (tl.program_id(0) + first) * TASK_WIDTH
    window = windows + tl.load(task) * WINDOW_WIDTH
    flat = tl.load(window + WINDOW_FLAT)
    elements = tl.load(window + WINDOW_ELEMENTS)
    lane = tl.arange(0, BLOCK)
    factors = tl.load(weights + lane).to(tl.uint64, bitcast=True)
    total = tl.zeros((BLOCK // 8,), tl.uint64)
    block = (flat >> 11) + tl.load(task + 1).to(tl.int64) * STEPS
    end = tl.minimum(block + STEPS, (flat + elements + (BLOCK - 1)) >> 11)
    while block < end:
        start = (block << 11) - flat
        address = tl.load(window + WINDOW_ADDRESS) + start * itemsize
        memory = address.to(tl.pointer_type(narrow))
        memory = tl.multiple_of(memory, 16) + lane
        if (start >= 0) & (start + BLOCK <= elements):
            values = tl.load(memory)
        else:
            index = start.to(tl.int32) + lane
            values = tl.load(memory, mask=(index >= 0) & (index < elements), other=0)
        products = tl.reshape(values.to(tl.uint64) * factors, (BLOCK // 8, 8))
        total += tl.sum(products, 1) * block_weight(block)
        block += 1
    seed = tl.load(window + WINDOW_SEED).to(tl.uint64, bitcast=True)
    whole = (tl.sum(total, 0) * seed).to(tl.int64, bitcast=True)
    tl.atomic_add(digests + tl.load(task + 2), whole, sem="relaxed")


@triton.jit(do_not_specialize=["first"])
def digest_box_kernel(
    tasks: tl.tensor,
    windows: tl.tensor,
    axes: tl.tensor,
    weights: tl.tensor,
    digests: tl.tensor,
    first: tl.tensor,
    narrow: tl.constexpr,
) -> None:
    """``digests[chunk] +=`` the digest of the next 16384 elements of any window, in order of its axes."""
    task = tasks + (tl.program_id(0) + first) * TASK_WIDTH
    window = windows + tl.load(task) * WINDOW_WIDTH
    elements = tl.load(window + WINDOW_ELEMENTS)
    total = tl.zeros((LANES,), tl.uint64)
    start = tl.load(task + 1) * (BLOCK * STEPS)
    end = tl.minimum(start + BLOCK * STEPS, elements.to(tl.int32))
    while start < end:
        rest = start + tl.arange(0, LANES)
        inside = rest < elements
        offset = rest.to(tl.int64) * 0
        flat = offset
        entry = axes + tl.load(window + WINDOW_FIRST_AXIS) * AXIS_WIDTH
        left = tl.load(window + WINDOW_AXES).to(tl.int32)
        while left > 0:
            here = rest
            if left > 1:
                size = tl.load(entry + AXIS_SIZE).to(tl.int32)
                rest = here // size
                here = here - rest * size
            offset += here.to(tl.int64) * tl.load(entry + AXIS_STRIDE)
            flat += here.to(tl.int64) * tl.load(entry + AXIS_FLAT)
            entry += AXIS_WIDTH
            left -= 1
        memory = pointers(tl.load(window + WINDOW_ADDRESS), offset, narrow)
        values = tl.load(memory, mask=inside, other=0).to(tl.uint64)
        total += values * weights_at(flat + tl.load(window + WINDOW_FLAT), weights, inside)
        start += LANES
    seed = tl.load(window + WINDOW_SEED).to(tl.uint64, bitcast=True)
    whole = (tl.sum(total, 0) * seed).to(tl.int64, bitcast=True)
    tl.atomic_add(digests + tl.load(task + 2), whole, sem="relaxed")


def digest_chunks(pieces: Pieces, chunks: ChunkList) -> NDArray[np.uint64]:
    """The digest of the elements of each chunk that ``pieces`` hold: uint64 ``(n,)``.

    ``chunks`` (n,) of dtype ``CHUNK``. An element that stands in two pieces counts twice. On the current
    stream, which it waits for once. O(elements); device memory about 100 bytes a window.

    Raises InputError: ``bad_argument`` for a chunk that the table has not, ``wrong_memory`` for pieces that
    are not torch tensors of integers on one device.
    """
    check_chunks(pieces.table, chunks)
    with current_device(device_of(pieces)):
        return _digest(pieces, chunks)


def _digest(pieces: Pieces, chunks: ChunkList) -> NDArray[np.uint64]:
    windows = windows_of(pieces, chunks, by_memory=True)
    owners = np.repeat(np.arange(len(chunks)), np.diff(windows.first))
    itemsizes = itemsizes_of(pieces.table, chunks)[owners]
    flat = flat_windows(windows, itemsizes)
    order = np.argsort(itemsizes * 2 + ~flat, kind="stable")
    ahead = np.where(flat, windows.windows[:, 1] % BLOCK.value, 0)
    first, windows_of_tasks = task_ranges((windows.windows[:, 7] + ahead)[order], BLOCK.value * STEPS.value)
    part = np.arange(len(windows_of_tasks)) - first[windows_of_tasks]
    window = order[windows_of_tasks]
    tasks = np.stack([window, part, owners[window]], 1).astype(np.int32)
    device = device_of(pieces)
    digests = torch.zeros(len(chunks), dtype=torch.int64, device=device)
    tables = Staged(device, [tasks, windows.windows, windows.axes, weight_table()]).start()
    kinds = (itemsizes * 2 + ~flat)[window]
    for kind in np.unique(kinds).tolist():
        low, high = np.searchsorted(kinds, [kind, kind + 1]).tolist()
        _launch(tables, digests, kind // 2, not kind % 2, low, high - low)
    return digests.cpu().numpy().view(np.uint64)


def flat_windows(windows: Windows, itemsizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Windows that ``digest_flat_kernel`` takes: contiguous, and its blocks start at vectors of memory."""
    table = windows.windows
    axis = np.zeros((len(table), 5), np.int64)
    single = table[:, 4] == 1
    axis[single] = windows.axes[table[single, 3]]
    contiguous = single & (axis[:, 3] == itemsizes) & (axis[:, 4] == 1)
    starts = table[:, 0] - table[:, 1] % BLOCK.value * itemsizes
    aligned: NDArray[np.bool_] = contiguous & (starts % _VECTOR == 0)
    return aligned


def _launch(
    tables: list[torch.Tensor], digests: torch.Tensor, itemsize: int, flat: bool, first: int, count: int
) -> None:
    tasks, windows, axes, weights = tables
    narrow: Any = ELEMENT_TYPES[itemsize][0]
    if flat:
        digest_flat_kernel[(count,)](
            tasks, windows, weights, digests, first, narrow=narrow, itemsize=itemsize
        )
    else:
        digest_box_kernel[(count,)](tasks, windows, axes, weights, digests, first, narrow=narrow)


def check_chunks(table: KernelTable, chunks: ChunkList) -> None:
    """Refuses a list with a chunk that the table has not."""
    counts = np.array([len(array.grid) for array in table.arrays] or [0], np.int64)
    arrays = np.minimum(chunks["array"], len(counts) - 1)
    missing = (chunks["array"] >= len(table.arrays)) | (chunks["chunk"] >= counts[arrays])
    if missing.any():
        array, chunk = chunks[int(missing.argmax())]
        raise InputError("bad_argument", f"the table has no chunk {chunk} of array {array}")
