"""Reading back: whether the weights hold what a pack writes."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from deltastore.kernels.triton.decode import task_elements, task_run
from deltastore.kernels.triton.element import fold_of, ordered, pointers
from deltastore.kernels.triton.locate import locate, may_meet
from deltastore.kernels.triton.pack import DevicePack
from deltastore.kernels.triton.tables import (
    ROW_END_WINDOW,
    ROW_FIRST_WINDOW,
    ROW_FLOATING,
    ROW_WIDTH,
    WINDOW_ADDRESS,
    WINDOW_WIDTH,
)
from deltastore.kernels.triton.upload import current_device

__all__ = ["mismatches", "mismatches_kernel"]


@triton.jit(do_not_specialize=["first"])
def mismatches_kernel(
    body: tl.tensor,
    rows: tl.tensor,
    windows: tl.tensor,
    axes: tl.tensor,
    runs: tl.tensor,
    task_runs: tl.tensor,
    before: tl.tensor,
    total_wrong: tl.tensor,
    first: tl.tensor,
    raw: tl.constexpr,
    bits: tl.constexpr,
    narrow: tl.constexpr,
    wide: tl.constexpr,
) -> None:
    """``total_wrong[0] +=`` elements of a task whose low w bits, ordered, are not their residue."""
    task = tl.program_id(0) + first
    run, number, width = task_run(runs, task_runs, task)
    positions, residues, valid = task_elements(body, run, before, task, raw, wide)
    lowest = tl.min(tl.where(valid, positions, 0x7FFFFFFF), 0)
    highest = tl.max(tl.where(valid, positions, -1), 0)
    row = rows + number * ROW_WIDTH
    fold = fold_of(tl.load(row + ROW_FLOATING), bits, wide)
    if raw:
        residues = ordered(residues, fold, bits)
    half = tl.full((1,), 1, wide) << (width - 1).to(wide)
    keep = half - 1 + half
    wrong = positions * 0
    window = windows + tl.load(row + ROW_FIRST_WINDOW) * WINDOW_WIDTH
    left = tl.load(row + ROW_END_WINDOW) - tl.load(row + ROW_FIRST_WINDOW)
    while left > 0:
        if may_meet(window, lowest, highest):
            inside, offset, _ = locate(positions, valid, window, axes)
            memory = pointers(tl.load(window + WINDOW_ADDRESS), offset, narrow)
            held = ordered(tl.load(memory, mask=inside, other=0).to(wide), fold, bits)
            wrong += (inside & (((held ^ residues) & keep) != 0)).to(tl.int32)
        window += WINDOW_WIDTH
        left -= 1
    total = tl.sum(wrong, 0)
    tl.atomic_add(total_wrong, total.to(tl.int64), mask=total > 0, sem="relaxed")


def mismatches(pack: DevicePack) -> int:
    """How many elements do not hold what ``apply`` writes there, counted in every piece: 0 right after it.

    Of an element of a run only the low w bits are told by the patch, and only they are compared. On the
    current stream, which it waits for.
    """
    with current_device(pack.body.device):
        pack.hand_over()
        total_wrong = torch.zeros(1, dtype=torch.int64, device=pack.body.device)
        pack.launch(mismatches_kernel, total_wrong)
        return int(total_wrong.item())
