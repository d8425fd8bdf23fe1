"""From two states of the weights to patches, on the device (SPEC section "Patch")."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from deltastore.errors import InputError
from deltastore.kernels.pieces import KernelTable, Pieces
from deltastore.kernels.rows import ROW, ChunkList, EncodedPatches, Encoding
from deltastore.kernels.triton.compare import HELD_TWICE, SPAN, compare_kernel, tally_kernel
from deltastore.kernels.triton.digest import check_chunks
from deltastore.kernels.triton.emit import emit_kernel, emit_raw_kernel
from deltastore.kernels.triton.patches import PatchPlan, plan_patches, write_headers
from deltastore.kernels.triton.runs import elements_of, itemsizes_of, task_ranges
from deltastore.kernels.triton.tables import ELEMENT_TYPES, LANES, ROW_WIDTH
from deltastore.kernels.triton.upload import Staged, current_device
from deltastore.kernels.triton.weights import weight_table
from deltastore.kernels.triton.windows import device_of, windows_of

__all__ = ["encode_changed"]

Integers = NDArray[np.int64]

BATCH_TASKS: Final = 2048
"""Tasks of 8192 elements that are encoded at a time: 16 Mi elements, 128 MiB of lists for BF16."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """Tasks of a batch by itemsize: ``first_task`` (n,) of each row, ``task_rows`` (tasks,), and of each
    group its itemsize, first task and number of tasks.
    """

    first_task: Integers
    task_rows: Integers
    groups: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Lists:
    """What changed in one group: position, old and new bits, 8192 places a task."""

    positions: torch.Tensor
    old: torch.Tensor
    new: torch.Tensor


def encode_changed(
    new: Pieces, old: Pieces, chunks: ChunkList, *, batch_tasks: int = BATCH_TASKS
) -> EncodedPatches:
    """Every changed element of ``chunks`` that ``new`` holds, as patches, byte for byte the reference's.

    ``new`` and ``old`` are of one table and on one device; an element's old bits are taken from the first of
    ``old``'s pieces that holds it. ``chunks`` (n,) of dtype ``CHUNK``, each once; rows come in its order, and
    a chunk without changes has none. The raw form is allowed where ``new`` holds the whole chunk. What a
    patch writes, its digest difference and its row come from one reading of ``new``. On the current stream,
    which is waited for twice in a batch. A batch is ``batch_tasks`` times 8192 elements, or one chunk; it
    takes 4 bytes and twice the element of device memory for each, and the patches.

    Raises InputError: ``wrong_memory`` when an element of ``new`` stands in two of its pieces, or ``old``
    does not hold it, or the pieces are on two devices; ``bad_argument`` for a chunk that the table has not.
    """
    check_chunks(new.table, chunks)
    if new.pieces and old.pieces and device_of(new) != device_of(old):
        raise InputError("wrong_memory", f"new weights on {device_of(new)}, old ones on {device_of(old)}")
    batches = _batches(new.table, chunks, batch_tasks)
    with current_device(device_of(new)):
        parts = [_encode_batch(new, old, chunks[low:high]) for low, high in batches]
    return EncodedPatches(
        np.concatenate([np.zeros(0, ROW), *(part.rows for part in parts)]),
        np.concatenate([np.zeros(0, np.uint8), *(part.body for part in parts)]),
        np.concatenate([np.zeros(0, np.uint32), *(part.changed for part in parts)]),
    )


def _batches(table: KernelTable, chunks: ChunkList, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of the list of at most ``most`` tasks, or of one chunk."""
    tasks = -(-elements_of(table, chunks) // SPAN.value)
    ends = np.cumsum(tasks)
    low = 0
    while low < len(chunks):
        before = int(ends[low - 1]) if low else 0
        high = max(int(np.searchsorted(ends, before + most, side="right")), low + 1)
        yield low, high
        low = high


def _cut(itemsizes: Integers, sizes: Integers, per_task: int) -> _Cut:
    order = np.argsort(itemsizes, kind="stable")
    first, items = task_ranges(sizes[order], per_task)
    first_task = np.zeros(len(sizes), np.int64)
    first_task[order] = first
    task_rows = order[items]
    of_tasks = itemsizes[task_rows]
    groups = []
    for itemsize in np.unique(of_tasks).tolist():
        low, high = np.searchsorted(of_tasks, [itemsize, itemsize + 1]).tolist()
        groups.append((itemsize, low, high - low))
    return _Cut(first_task, task_rows, tuple(groups))


def _encode_batch(new: Pieces, old: Pieces, chunks: ChunkList) -> EncodedPatches:
    table, device = new.table, device_of(new)
    after, before = windows_of(new, chunks), windows_of(old, chunks, seeds=False)
    elements, itemsizes = elements_of(table, chunks), itemsizes_of(table, chunks)
    cut = _cut(itemsizes, elements, SPAN.value)
    rows = np.zeros((len(chunks), ROW_WIDTH.value), np.int64)
    rows[:, 0] = np.array([array.floating for array in table.arrays], np.int64)[chunks["array"]]
    rows[:, 1], rows[:, 2], rows[:, 3] = after.first[:-1], after.first[1:], elements
    rows[:, 4], rows[:, 5], rows[:, 6] = before.first[:-1], before.first[1:], cut.first_task
    staged = Staged(
        device,
        [
            rows,
            cut.task_rows.astype(np.int32),
            after.windows,
            after.axes,
            before.windows,
            before.axes,
            weight_table(),
        ],
    )
    tables = staged.start()
    found, lists = _compare(tables, cut)
    plan = plan_patches(found.cpu().numpy(), rows, cut.task_rows, chunks, itemsizes)
    _refuse(plan.faults, chunks)
    body, sums = _emit(tables, cut, found, lists, rows, plan, itemsizes)
    octets = body.cpu().numpy().view(np.uint8)[: plan.nbytes]
    write_headers(octets, plan)
    differences, changed = sums.cpu().numpy()[:, plan.numbers]
    plan.rows["difference"] = np.ascontiguousarray(differences).view(np.uint64)
    raw = plan.rows["encoding"] == Encoding.RAW
    return EncodedPatches(plan.rows, octets, np.where(raw, changed, plan.rows["count"]).astype(np.uint32))


def _refuse(faults: Integers, chunks: ChunkList) -> None:
    if faults.any():
        number = int((faults != 0).argmax())
        where = f"chunk {chunks[number]['chunk']} of array {chunks[number]['array']}"
        if faults[number] & HELD_TWICE.value:
            raise InputError("wrong_memory", f"{where}: two pieces hold one element")
        raise InputError("wrong_memory", f"{where}: the old weights lack a part of the new ones")


def _compare(tables: list[torch.Tensor], cut: _Cut) -> tuple[torch.Tensor, list[_Lists]]:
    rows, task_rows, windows, axes, old_windows, old_axes, _ = tables
    device = rows.device
    found = torch.zeros((len(task_rows), 9), dtype=torch.int32, device=device)
    lists = []
    for itemsize, first, count in cut.groups:
        narrow, wide, scratch = ELEMENT_TYPES[itemsize]
        places = count * SPAN.value
        positions = torch.empty(places, dtype=torch.int32, device=device)
        old, new = torch.empty((2, places), dtype=scratch, device=device)
        compare_kernel[(count,)](
            rows,
            task_rows,
            windows,
            axes,
            old_windows,
            old_axes,
            found,
            positions,
            old,
            new,
            first,
            narrow=narrow,
        )
        tally_kernel[(count,)](
            rows, task_rows, found, old, new, first, bits=itemsize * 8, narrow=narrow, wide=wide
        )
        lists.append(_Lists(positions, old, new))
    return found, lists


def _emit(
    tables: list[torch.Tensor],
    cut: _Cut,
    found: torch.Tensor,
    lists: list[_Lists],
    rows: Integers,
    plan: PatchPlan,
    itemsizes: Integers,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of what was planned: the body, int32 words, and int64 (2, chunks or one more): digest differences, and
    how many elements of a raw patch changed.
    """
    _, task_rows, windows, axes, old_windows, old_axes, weights = tables
    device = found.device
    rows[:, 7], rows[:, 8], rows[:, 9] = plan.first_run, plan.end_run, plan.start
    raw = _cut(itemsizes, np.where(plan.raw, rows[:, 3], 0), LANES.value)
    raw_rows = rows.copy()
    raw_rows[:, 6] = raw.first_task
    staged = Staged(device, [rows, raw_rows, raw.task_rows.astype(np.int32), plan.runs, plan.ranks])
    new_rows, new_raw_rows, raw_task_rows, runs, ranks = staged.start()
    body = torch.zeros(-(-plan.nbytes // 4), dtype=torch.int32, device=device)
    sums = torch.zeros((2, len(rows) + len(rows) % 2), dtype=torch.int64, device=device)
    for (itemsize, first, count), each in zip(cut.groups, lists, strict=True):
        narrow, wide, _ = ELEMENT_TYPES[itemsize]
        emit_kernel[(count,)](
            new_rows,
            task_rows,
            windows,
            axes,
            found,
            each.positions,
            each.old,
            each.new,
            runs,
            ranks,
            weights,
            body,
            sums[0],
            first,
            bits=itemsize * 8,
            narrow=narrow,
            wide=wide,
        )
    for itemsize, first, count in raw.groups:
        emit_raw_kernel[(count,)](
            new_raw_rows,
            raw_task_rows,
            windows,
            axes,
            old_windows,
            old_axes,
            weights,
            body,
            sums[0],
            sums[1],
            first,
            bits=itemsize * 8,
            narrow=ELEMENT_TYPES[itemsize][0],
        )
    return body, sums
