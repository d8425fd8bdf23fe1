"""Where every run of every patch goes, from what was found to have changed. NumPy, no loop over chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from deltastore.kernels.reference.patch import WIDTHS
from deltastore.kernels.rows import ROW, ChunkList, Encoding, Octets, Rows
from deltastore.kernels.triton.tables import words_of
from deltastore.kernels.triton.widths import best_low_bits, chosen_widths

__all__ = ["PatchPlan", "plan_patches", "write_headers"]

Integers = NDArray[np.int64]

_MOST_RUNS: Final = 6
_WIDTHS: Final = np.array([0, *WIDTHS], np.int64)


@dataclass(frozen=True, slots=True)
class PatchPlan:
    """The patches of n chunks, of which the R in ``numbers`` have one.

    ``faults`` (n,): nonzero where a chunk cannot be encoded; the rest is void then. ``rows`` (R,) but for the
    difference, ``nbytes`` of body. ``runs`` int32 (m, 8), those of chunk c from ``first_run[c]`` to
    ``end_run[c]``; ``ranks`` int32 (tasks, 6): elements of each run in earlier tasks. ``raw`` (n,) bool;
    ``start`` (n,): the first word of each patch.
    """

    faults: Integers
    numbers: Integers
    rows: Rows
    nbytes: int
    runs: NDArray[np.int32]
    first_run: Integers
    end_run: Integers
    ranks: NDArray[np.int32]
    raw: NDArray[np.bool_]
    start: Integers


def plan_patches(
    found: NDArray[np.int32], rows: Integers, task_rows: Integers, chunks: ChunkList, itemsizes: Integers
) -> PatchPlan:
    """``found`` (tasks, 9) is what ``compare`` found, ``rows`` the table of n chunks that it had."""
    of_chunk = np.zeros((len(chunks), 9), np.int64)
    np.add.at(of_chunk, task_rows, found)
    faults = np.zeros(len(chunks), np.int64)
    np.bitwise_or.at(faults, task_rows, found[:, 2])
    elements = rows[:, 3]
    numbers = np.flatnonzero(of_chunk[:, 0] > 0)
    fits = np.concatenate([np.zeros((len(chunks), 1), np.int64), of_chunk[:, 3:]], axis=1)
    choice = chosen_widths(fits[numbers], elements[numbers])
    raw_size = -(-elements[numbers] * itemsizes[numbers] // 4) * 4
    raw = (of_chunk[numbers, 1] == elements[numbers]) & (choice.size >= raw_size)
    size = np.where(raw, raw_size, choice.size)
    start = (np.cumsum(size) - size) // 4

    out = np.zeros(len(numbers), ROW)
    out["array"], out["chunk"] = chunks["array"][numbers], chunks["chunk"][numbers]
    out["length"] = size
    out["count"] = np.where(raw, elements[numbers], of_chunk[numbers, 0])
    out["encoding"] = np.where(raw, Encoding.RAW, Encoding.RUNS)

    run_counts = np.zeros(len(chunks), np.int64)
    run_counts[numbers] = np.where(raw, 0, choice.runs)
    above, upto = np.zeros((2, len(chunks), _MOST_RUNS), np.int64)
    above[numbers], upto[numbers] = choice.above, choice.upto
    at = np.zeros(len(chunks), np.int64)
    at[numbers] = start
    is_raw = np.zeros(len(chunks), bool)
    is_raw[numbers] = raw
    first_run = np.cumsum(run_counts) - run_counts
    return PatchPlan(
        faults,
        numbers,
        out,
        int(size.sum()),
        _runs(run_counts, above, upto, fits, elements, at),
        first_run,
        first_run + run_counts,
        _ranks(found, task_rows, above, upto),
        is_raw,
        at,
    )


def _runs(
    run_counts: Integers, above: Integers, upto: Integers, fits: Integers, elements: Integers, at: Integers
) -> NDArray[np.int32]:
    owner = np.repeat(np.arange(len(run_counts)), run_counts)
    first = np.cumsum(run_counts) - run_counts
    within = np.arange(len(owner)) - first[owner]
    low, high = above[owner, within], upto[owner, within]
    count = fits[owner, high] - fits[owner, low]
    width = _WIDTHS[high]
    low_bits = best_low_bits(count, elements[owner])
    low_words = -(-(count * low_bits) // 32)
    high_words = -(-(count + ((elements[owner] - 1) >> low_bits)) // 32)
    size = low_words + high_words - (-(count * width) // 32)
    before = np.cumsum(size) - size
    start = at[owner] + 1 + 2 * run_counts[owner] + before - before[first[owner]]
    columns = (
        owner,
        width,
        low_bits,
        count,
        start,
        start + low_words,
        start + low_words + high_words,
        _WIDTHS[low],
    )
    return np.stack(columns, 1).astype(np.int32)


def _ranks(
    found: NDArray[np.int32], task_rows: Integers, above: Integers, upto: Integers
) -> NDArray[np.int32]:
    fits = np.concatenate([np.zeros((len(found), 1), np.int64), found[:, 3:]], axis=1)
    every = np.arange(len(found))[:, None]
    counts = fits[every, upto[task_rows]] - fits[every, above[task_rows]]
    before = np.cumsum(counts, axis=0) - counts
    starts = np.flatnonzero(np.diff(task_rows, prepend=-1))
    first = np.repeat(starts, np.diff(starts, append=len(found)))
    ranks: NDArray[np.int32] = (before - before[first]).astype(np.int32)
    return ranks


def write_headers(body: Octets, plan: PatchPlan) -> None:
    """The number of runs and the run headers of every patch in runs, into ``body``."""
    words = words_of(body)
    counts = plan.end_run - plan.first_run
    some = np.flatnonzero(counts)
    start = plan.start[some]
    words[start] = counts[some]
    owner = plan.runs[:, 0].astype(np.int64)
    within = np.arange(len(owner)) - plan.first_run[owner]
    head = plan.start[owner] + 1 + 2 * within
    words[head] = plan.runs[:, 1] | (plan.runs[:, 2] << 8)
    words[head + 1] = plan.runs[:, 3]
