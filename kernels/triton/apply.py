"""Patches into live weights, straight from the packed runs: what an engine's pause consists of."""

from __future__ import annotations

import triton
import triton.language as tl

from deltastore.errors import InputError
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
    WINDOW_WIDTH,
)
from deltastore.kernels.triton.upload import current_device

__all__ = ["apply", "apply_kernel"]


@triton.jit(do_not_specialize=["first"])
def apply_kernel(
    body: tl.tensor,
    rows: tl.tensor,
    windows: tl.tensor,
    axes: tl.tensor,
    runs: tl.tensor,
    task_runs: tl.tensor,
    before: tl.tensor,
    first: tl.tensor,
    raw: tl.constexpr,
    bits: tl.constexpr,
    narrow: tl.constexpr,
    wide: tl.constexpr,
) -> None:
    """Write the new bits of one task's elements in every window that holds them; none that does not fit."""
    task = tl.program_id(0) + first
    run, number, width = task_run(runs, task_runs, task)
    positions, residues, valid = task_elements(body, run, before, task, raw, wide)
    lowest = tl.min(tl.where(valid, positions, 0x7FFFFFFF), 0)
    highest = tl.max(tl.where(valid, positions, -1), 0)
    row = rows + number * ROW_WIDTH
    fold = fold_of(tl.load(row + ROW_FLOATING), bits, wide)
    if raw:
        residues = ordered(residues, fold, bits)
    window = windows + tl.load(row + ROW_FIRST_WINDOW) * WINDOW_WIDTH
    left = tl.load(row + ROW_END_WINDOW) - tl.load(row + ROW_FIRST_WINDOW)
    while left > 0:
        if may_meet(window, lowest, highest):
            inside, offset, _ = locate(positions, valid, window, axes)
            memory = pointers(tl.load(window + WINDOW_ADDRESS), offset, narrow)
            old = tl.load(memory, mask=inside & (width < bits), other=0).to(wide)
            new, bad = resolved(old, residues, fold, width, bits, wide)
            tl.store(memory, new.to(narrow), mask=inside & (bad == 0))
        window += WINDOW_WIDTH
        left -= 1


def apply(pack: DevicePack) -> None:
    """Write a checked pack into the weights, on the current stream and without any synchronisation.

    Doing it again is harmless. Where several pieces hold an element, what each gets follows from its own
    bits. An element that does not fit any more, because the weights were changed after ``check``, is left as
    it is, and ``mismatches`` counts it.

    Raises InputError ``bad_argument`` when ``check`` has not accepted the pack.
    """
    if not pack.fits:
        raise InputError("bad_argument", "a pack that is not checked is not applied; call check first")
    with current_device(pack.body.device):
        pack.hand_over()
        pack.launch(apply_kernel)
