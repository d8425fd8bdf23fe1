"""Whether a pack fits the live weights, and what it does to their digest; nothing is written."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from deltastore.errors import PatchError
from deltastore.kernels.rows import REASONS, RULE_OF
from deltastore.kernels.triton.decode import task_elements, task_run
from deltastore.kernels.triton.element import fold_of, ordered, pointers, resolved
from deltastore.kernels.triton.locate import locate, may_meet
from deltastore.kernels.triton.pack import DevicePack
from deltastore.kernels.triton.tables import (
    ROW_END_WINDOW,
    ROW_FIRST_WINDOW,
    ROW_FLOATING,
    ROW_WIDTH,
    WINDOW_ADDRESS,
    WINDOW_FLAT,
    WINDOW_SEED,
    WINDOW_WIDTH,
)
from deltastore.kernels.triton.weights import weights_at

__all__ = ["check", "check_kernel"]


@triton.jit(do_not_specialize=["first"])
def check_kernel(
    body: tl.tensor,
    rows: tl.tensor,
    windows: tl.tensor,
    axes: tl.tensor,
    runs: tl.tensor,
    task_runs: tl.tensor,
    before: tl.tensor,
    weights: tl.tensor,
    differences: tl.tensor,
    misfits: tl.tensor,
    first: tl.tensor,
    raw: tl.constexpr,
    bits: tl.constexpr,
    narrow: tl.constexpr,
    wide: tl.constexpr,
) -> None:
    """``differences[row] += sum of (new - old) * w``; ``misfits[row] = 1`` where an offset is -2**(w-1)."""
    task = tl.program_id(0) + first
    run, number, width = task_run(runs, task_runs, task)
    positions, residues, valid = task_elements(body, run, before, task, raw, wide)
    lowest = tl.min(tl.where(valid, positions, 0x7FFFFFFF), 0)
    highest = tl.max(tl.where(valid, positions, -1), 0)
    row = rows + number * ROW_WIDTH
    fold = fold_of(tl.load(row + ROW_FLOATING), bits, wide)
    if raw:
        residues = ordered(residues, fold, bits)
    total = positions.to(tl.uint64) * 0
    misfit = positions < 0
    known = misfit
    window = windows + tl.load(row + ROW_FIRST_WINDOW) * WINDOW_WIDTH
    left = tl.load(row + ROW_END_WINDOW) - tl.load(row + ROW_FIRST_WINDOW)
    while left > 0:
        if may_meet(window, lowest, highest):
            inside, offset, flat = locate(positions, valid, window, axes)
            memory = pointers(tl.load(window + WINDOW_ADDRESS), offset, narrow)
            old = tl.load(memory, mask=inside, other=0).to(wide)
            new, bad = resolved(old, residues, fold, width, bits, wide)
            misfit = misfit | (inside & bad)
            counts = inside & (known == 0)
            weight = weights_at(flat + tl.load(window + WINDOW_FLAT), weights, counts)
            weight *= tl.load(window + WINDOW_SEED).to(tl.uint64, bitcast=True)
            total += tl.where(counts, (new.to(tl.uint64) - old.to(tl.uint64)) * weight, 0)
            known = known | inside
        window += WINDOW_WIDTH
        left -= 1
    change = tl.sum(total, 0).to(tl.int64, bitcast=True)
    tl.atomic_add(differences + number, change, sem="relaxed")
    tl.store(misfits + number, 1, mask=tl.max(misfit.to(tl.int32), 0) > 0)


def check(pack: DevicePack) -> NDArray[np.uint64]:
    """Read the live weights and work out each row's digest difference, uint64 (R,); nothing is written.

    That is the row's ``difference`` where all of the patch's elements are held; where several pieces hold an
    element it must fit in all, and the first one's bits count. Runs on the pack's own stream, after what the
    current stream has been given so far, while the engine goes on; one synchronisation, of that stream.

    Raises PatchError for the first row that does not fit the current weights (DS036).
    """
    count = len(pack.rows)
    with pack.stream.entered(after_engine=True):
        found = torch.zeros((2, count + count % 2), dtype=torch.int64, device=pack.body.device)
        pack.launch(check_kernel, pack.weights, found[0], found[1])
        differences, misfits = found.cpu().numpy()[:, :count]
    if misfits.any():
        raise PatchError(int(misfits.argmax()), REASONS[14], RULE_OF[REASONS[14]])
    pack.fits = True
    return np.ascontiguousarray(differences).view(np.uint64)
