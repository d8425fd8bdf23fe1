"""The runs of a pack as a table: where each section starts and how it is cut into tasks. NumPy, no loop.

The pack has been checked: headers are trusted here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import InputError
from deltastore.kernels.pieces import KernelTable
from deltastore.kernels.rows import Encoding, Octets, Rows, offsets_of
from deltastore.kernels.triton.tables import LANES, words_of

__all__ = ["RunTable", "TaskGroup", "elements_of", "itemsizes_of", "run_table", "task_ranges"]

Integers = NDArray[np.int64]

_MOST_WORDS = 1 << 29


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """Tasks ``first .. first + count - 1`` are of arrays of ``itemsize`` bytes an element, raw or not."""

    itemsize: int
    raw: bool
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class RunTable:
    """``runs`` int32 (n, 8), columns in ``tables.py``; ``task_runs`` int32 (tasks,): the run of each task."""

    runs: NDArray[np.int32]
    task_runs: NDArray[np.int32]
    groups: tuple[TaskGroup, ...]


def elements_of(table: KernelTable, chunks: NDArray[np.void]) -> Integers:
    """Elements of each chunk: int64 (n,). ``chunks`` has fields ``array`` and ``chunk``."""
    elements = np.zeros(len(chunks), np.int64)
    for array in np.unique(chunks["array"]).tolist():
        mine = chunks["array"] == array
        elements[mine] = table.arrays[array].grid.elements(chunks["chunk"][mine].astype(np.int64))
    return elements


def itemsizes_of(table: KernelTable, chunks: NDArray[np.void]) -> Integers:
    """Bytes an element of each chunk's array: int64 (n,)."""
    of_arrays = np.array([array.itemsize for array in table.arrays], np.int64)
    itemsizes: Integers = of_arrays[chunks["array"]]
    return itemsizes


def task_ranges(sizes: Integers, per_task: int) -> tuple[Integers, Integers]:
    """First task of each item of ``sizes`` units, and the item of each task."""
    tasks = -(-sizes // per_task)
    return np.cumsum(tasks) - tasks, np.repeat(np.arange(len(sizes)), tasks)


def run_table(table: KernelTable, rows: Rows, body: Octets) -> RunTable:
    """All runs and raw patches of checked ``rows`` (R,) and their ``body``, by itemsize, raw ones last.

    Raises InputError ``bad_argument`` for a body of 2 GiB or more: a pack has at most 1 GiB.
    """
    words = words_of(body)
    if len(words) >= _MOST_WORDS:
        raise InputError("bad_argument", f"a body of {len(body)} bytes; a pack has at most 1 GiB")
    elements = elements_of(table, rows)
    itemsizes = itemsizes_of(table, rows)
    at = offsets_of(rows)[:-1] // 4
    raw = rows["encoding"] == Encoding.RAW
    runs = np.concatenate(
        [
            _coded(words, np.flatnonzero(~raw), at, elements),
            _raw(np.flatnonzero(raw), at, elements, itemsizes),
        ]
    )
    kinds = itemsizes[runs[:, 0]] * 2 + raw[runs[:, 0]]
    order = np.argsort(kinds, kind="stable")
    runs, kinds = runs[order], kinds[order]
    high_bits = (runs[:, 6] - runs[:, 5]) * 32
    first, task_runs = task_ranges(np.where(kinds % 2 == 1, runs[:, 3], high_bits), LANES.value)
    runs[:, 7] = first
    bounds = np.concatenate([first, [len(task_runs)]])
    groups = []
    for kind in np.unique(kinds).tolist():
        low, high = np.searchsorted(kinds, [kind, kind + 1])
        start, end = int(bounds[low]), int(bounds[high])
        groups.append(TaskGroup(kind // 2, bool(kind % 2), start, end - start))
    return RunTable(runs.astype(np.int32), task_runs.astype(np.int32), tuple(groups))


def _coded(words: NDArray[np.uint32], numbers: Integers, at: Integers, elements: Integers) -> Integers:
    """Runs of the patches ``numbers`` in coded form, one after another."""
    run_counts = words[at[numbers]].astype(np.int64)
    row = np.repeat(numbers, run_counts)
    first = np.cumsum(run_counts) - run_counts
    within = np.arange(len(row)) - np.repeat(first, run_counts)
    head = at[row] + 1 + 2 * within
    start, count = words[head].astype(np.int64), words[head + 1].astype(np.int64)
    width, low_bits = start & 255, (start >> 8) & 255
    low_words = -(-(count * low_bits) // 32)
    high_words = -(-(count + ((elements[row] - 1) >> low_bits)) // 32)
    size = low_words + high_words - (-(count * width) // 32)
    before = np.cumsum(size) - size
    sections = at[row] + 1 + 2 * np.repeat(run_counts, run_counts)
    low_word = sections + before - np.repeat(before[first], run_counts)
    high_word = low_word + low_words
    columns = (row, width, low_bits, count, low_word, high_word, high_word + high_words, np.zeros_like(row))
    return np.stack(columns, 1)


def _raw(numbers: Integers, at: Integers, elements: Integers, itemsizes: Integers) -> Integers:
    """Raw patches as runs of all positions, with no low and no high section."""
    none = np.zeros_like(numbers)
    start = at[numbers]
    columns = (numbers, itemsizes[numbers] * 8, none, elements[numbers], start, start, start, none)
    return np.stack(columns, 1)
