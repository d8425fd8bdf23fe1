"""Inside kernels: from the packed runs to positions and residues, a task at a time (SPEC section "Patch").

A *task* is 1024 bits of the high section of one run, or 1024 elements of a raw patch. The number of ones
before a task is known (``count_ones``), so tasks are decoded in any order and no index ever stands in memory.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from deltastore.kernels.triton.tables import (
    LANES,
    RUN_BITS,
    RUN_COUNT,
    RUN_FIRST_TASK,
    RUN_HIGH_WORD,
    RUN_LOW_BITS,
    RUN_LOW_WORD,
    RUN_RESIDUE_WORD,
    RUN_ROW,
    RUN_WIDTH,
)

__all__ = ["field", "task_elements", "task_run"]


@triton.jit
def field(body: tl.tensor, word: tl.tensor, bit: tl.tensor, width: tl.tensor, valid: tl.tensor) -> Any:
    """The bits from ``bit`` of the section at ``word`` on, as uint64; above ``width`` any may be set.

    Nothing is read but words that hold a part of the field.
    """
    at = body + word + (bit >> 5)
    shift = bit & 31
    low = tl.load(at, mask=valid & (width > 0), other=0).to(tl.uint32, bitcast=True).to(tl.uint64)
    high = tl.load(at + 1, mask=valid & (shift + width > 32), other=0).to(tl.uint32, bitcast=True)
    return (low | (high.to(tl.uint64) << 32)) >> shift.to(tl.uint64)


@triton.jit
def task_run(runs: tl.tensor, task_runs: tl.tensor, task: tl.tensor) -> Any:
    """(run, row, width) of a task: a pointer and two numbers."""
    run = runs + tl.load(task_runs + task) * RUN_WIDTH
    return run, tl.load(run + RUN_ROW), tl.load(run + RUN_BITS)


@triton.jit
def task_elements(
    body: tl.tensor, run: tl.tensor, before: tl.tensor, task: tl.tensor, raw: tl.constexpr, wide: tl.constexpr
) -> Any:
    """(positions, residues, valid) of a task: int32, ``wide``, and which lanes hold an element."""
    first_task = tl.load(run + RUN_FIRST_TASK)
    bit = (task - first_task) * LANES + tl.arange(0, LANES)
    count = tl.load(run + RUN_COUNT)
    width = tl.load(run + RUN_BITS)
    residue_word = tl.load(run + RUN_RESIDUE_WORD)
    if raw:
        rank = bit
        positions = bit
        valid = bit < count
    else:
        high_word = tl.load(run + RUN_HIGH_WORD)
        low_bits = tl.load(run + RUN_LOW_BITS)
        inside = (bit >> 5) < residue_word - high_word
        word = tl.load(body + high_word + (bit >> 5), mask=inside, other=0)
        ones = (word >> (bit & 31)) & 1
        earlier = (tl.load(before + task) - tl.load(before + first_task)).to(tl.int32)
        rank = tl.cumsum(ones, 0) - ones + earlier
        valid = (ones != 0) & (rank < count)
        low = field(body, tl.load(run + RUN_LOW_WORD), rank * low_bits, low_bits, valid).to(tl.int32)
        positions = ((bit - rank) << low_bits) | (low & ((1 << low_bits) - 1))
    residues = field(body, residue_word, rank * width, width, valid)
    keep = (tl.full((1,), 0, tl.uint64) - 1) >> (64 - width).to(tl.uint64)
    return positions, (residues & keep).to(wide), valid
