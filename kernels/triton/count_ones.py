"""How many positions stand before each task: ones of the high sections, by popcount and a prefix sum."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from deltastore.kernels.triton.tables import (
    LANES,
    RUN_FIRST_TASK,
    RUN_HIGH_WORD,
    RUN_RESIDUE_WORD,
    RUN_WIDTH,
)

__all__ = ["count_ones_kernel", "ones_before"]

TASKS = tl.constexpr(32)
"""Tasks that one program counts."""


@triton.jit
def _ones_in(words: tl.tensor) -> Any:
    """Ones of each 32-bit word (uint32)."""
    pairs = words - ((words >> 1) & 0x55555555)
    fours = (pairs & 0x33333333) + ((pairs >> 2) & 0x33333333)
    eights = (fours + (fours >> 4)) & 0x0F0F0F0F
    return (eights * 0x01010101) >> 24


@triton.jit(do_not_specialize=["end"])
def count_ones_kernel(
    body: tl.tensor, runs: tl.tensor, task_runs: tl.tensor, counts: tl.tensor, end: tl.tensor
) -> None:
    """``counts[t]``: ones among the 1024 bits of task t."""
    words: tl.constexpr = LANES // 32
    task = tl.program_id(0) * TASKS + tl.arange(0, TASKS)
    exists = task < end
    run = runs + tl.load(task_runs + task, mask=exists, other=0) * RUN_WIDTH
    start = (task - tl.load(run + RUN_FIRST_TASK)) * words
    first = tl.load(run + RUN_HIGH_WORD)
    size = tl.load(run + RUN_RESIDUE_WORD) - first
    word = start[:, None] + tl.arange(0, words)[None, :]
    inside = exists[:, None] & (word < size[:, None])
    values = tl.load(body + first[:, None] + word, mask=inside, other=0).to(tl.uint32, bitcast=True)
    tl.store(counts + task, tl.sum(_ones_in(values).to(tl.int32), 1), mask=exists)


def ones_before(body: torch.Tensor, runs: torch.Tensor, task_runs: torch.Tensor) -> torch.Tensor:
    """int64 (tasks,): ones of all tasks before each one; those before it in its run are a difference."""
    tasks = len(task_runs)
    counts = torch.empty(tasks, dtype=torch.int32, device=body.device)
    if tasks:
        count_ones_kernel[(-(-tasks // TASKS.value),)](body, runs, task_runs, counts, tasks)
    return torch.cumsum(counts, 0, dtype=torch.int64) - counts
