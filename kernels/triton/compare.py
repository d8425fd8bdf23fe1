"""Encoding, first step: what changed, as lists of (position, old bits, new bits), and the widths it takes.

A task is 8192 elements of one chunk; what changed among them stands at the start of the task's own part of
the lists, in order. Everything that follows works on the lists: no weight is read twice.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from deltastore.kernels.triton.element import fold_of, ordered, pointers
from deltastore.kernels.triton.locate import locate, may_meet
from deltastore.kernels.triton.tables import (
    LANES,
    ROW_ELEMENTS,
    ROW_END_OLD,
    ROW_END_WINDOW,
    ROW_FIRST_OLD,
    ROW_FIRST_TASK,
    ROW_FIRST_WINDOW,
    ROW_FLOATING,
    ROW_WIDTH,
    WINDOW_ADDRESS,
    WINDOW_WIDTH,
)

__all__ = ["ENTRIES", "compare_kernel", "fits_width", "gathered", "step_magnitude", "tally_kernel"]

ENTRIES = tl.constexpr(256)
"""Entries of a list that are taken at a time."""

SPAN = tl.constexpr(8192)

FOUND_WIDTH = tl.constexpr(9)
FOUND_COUNT = tl.constexpr(0)
FOUND_HELD = tl.constexpr(1)
FOUND_FAULTS = tl.constexpr(2)
FOUND_FITS = tl.constexpr(3)
"""Six columns: how many entries fit the width 2, 4, 8, 16, 32, 64."""

HELD_TWICE = tl.constexpr(1)
LACKS_OLD = tl.constexpr(2)


@triton.jit
def gathered(
    positions: tl.tensor,
    valid: tl.tensor,
    windows: tl.tensor,
    axes: tl.tensor,
    first: tl.tensor,
    end: tl.tensor,
    narrow: tl.constexpr,
) -> Any:
    """(bits, held, twice) at ascending positions: those of the first window that holds each, whether one
    does, and whether several do.
    """
    lowest = tl.min(positions, 0)
    highest = tl.max(positions, 0)
    bits = positions.to(narrow) * 0
    held = positions < 0
    twice = held
    window = windows + first * WINDOW_WIDTH
    left = end - first
    while left > 0:
        if may_meet(window, lowest, highest):
            inside, offset, _ = locate(positions, valid, window, axes)
            new = inside & (held == 0)
            memory = pointers(tl.load(window + WINDOW_ADDRESS), offset, narrow)
            bits = tl.where(new, tl.load(memory, mask=new, other=0), bits)
            twice = twice | (inside & held)
            held = held | inside
        window += WINDOW_WIDTH
        left -= 1
    return bits, held, twice


@triton.jit(do_not_specialize=["first"])
def compare_kernel(
    rows: tl.tensor,
    task_rows: tl.tensor,
    windows: tl.tensor,
    axes: tl.tensor,
    old_windows: tl.tensor,
    old_axes: tl.tensor,
    found: tl.tensor,
    positions: tl.tensor,
    old_bits: tl.tensor,
    new_bits: tl.tensor,
    first: tl.tensor,
    narrow: tl.constexpr,
) -> None:
    """List what changed in one task; ``found``: how many that are, elements held, and faults."""
    task = tl.program_id(0) + first
    row = rows + tl.load(task_rows + task) * ROW_WIDTH
    elements = tl.load(row + ROW_ELEMENTS).to(tl.int32)
    start = (task - tl.load(row + ROW_FIRST_TASK)).to(tl.int32) * SPAN
    slot = tl.program_id(0).to(tl.int64) * SPAN
    count = start * 0
    held_count = start * 0
    faults = start * 0
    end = tl.minimum(start + SPAN, elements)
    while start < end:
        at = start + tl.arange(0, LANES)
        valid = at < elements
        new, held, twice = gathered(
            at,
            valid,
            windows,
            axes,
            tl.load(row + ROW_FIRST_WINDOW),
            tl.load(row + ROW_END_WINDOW),
            narrow,
        )
        old, known, _ = gathered(
            at,
            valid,
            old_windows,
            old_axes,
            tl.load(row + ROW_FIRST_OLD),
            tl.load(row + ROW_END_OLD),
            narrow,
        )
        changed = held & known & (new != old)
        ones = changed.to(tl.int32)
        place = slot + count + tl.cumsum(ones, 0) - ones
        tl.store(positions + place, at, mask=changed)
        tl.store(old_bits + place, old.to(old_bits.dtype.element_ty, bitcast=True), mask=changed)
        tl.store(new_bits + place, new.to(new_bits.dtype.element_ty, bitcast=True), mask=changed)
        count += tl.sum(ones, 0)
        held_count += tl.sum(held.to(tl.int32), 0)
        faults = faults | (tl.max(twice.to(tl.int32), 0) * HELD_TWICE)
        faults = faults | (tl.max((held & (known == 0)).to(tl.int32), 0) * LACKS_OLD)
        start += LANES
    tl.store(found + task * FOUND_WIDTH + FOUND_COUNT, count)
    tl.store(found + task * FOUND_WIDTH + FOUND_HELD, held_count)
    tl.store(found + task * FOUND_WIDTH + FOUND_FAULTS, faults)


@triton.jit
def step_magnitude(
    old: tl.tensor, new: tl.tensor, fold: tl.tensor, bits: tl.constexpr, wide: tl.constexpr
) -> Any:
    """|new - old| in ordered integers of ``bits`` bits, -2**(W-1) giving 2**(W-1)."""
    spare: tl.constexpr = (64 if bits == 64 else 32) - bits
    full = (tl.full((1,), 0, wide) - 1) >> spare
    step = (ordered(new, fold, bits) - ordered(old, fold, bits)) & full
    return tl.where((step >> (bits - 1)) != 0, (step * 0 - step) & full, step)


@triton.jit
def fits_width(magnitude: tl.tensor, width: tl.tensor, bits: tl.constexpr, wide: tl.constexpr) -> Any:
    """Whether a step fits ``width`` bits, 0 to 64: none fits 0 bits, and all fit the element's own width."""
    shift = tl.where((width > 0) & (width < bits), width - 1, 0).to(wide)
    return (width >= bits) | ((width > 0) & (magnitude < (tl.full((1,), 1, wide) << shift)))


@triton.jit(do_not_specialize=["first"])
def tally_kernel(
    rows: tl.tensor,
    task_rows: tl.tensor,
    found: tl.tensor,
    old_bits: tl.tensor,
    new_bits: tl.tensor,
    first: tl.tensor,
    bits: tl.constexpr,
    narrow: tl.constexpr,
    wide: tl.constexpr,
) -> None:
    """Count how many entries of one task fit each width."""
    task = tl.program_id(0) + first
    row = rows + tl.load(task_rows + task) * ROW_WIDTH
    fold = fold_of(tl.load(row + ROW_FLOATING), bits, wide)
    count = tl.load(found + task * FOUND_WIDTH + FOUND_COUNT)
    slot = tl.program_id(0).to(tl.int64) * SPAN
    width = tl.full((1,), 2, tl.int32) << tl.arange(0, 8)
    fits = tl.arange(0, 8) * 0
    done = count * 0
    while done < count:
        entry = done + tl.arange(0, ENTRIES)
        valid = entry < count
        old = tl.load(old_bits + slot + entry, mask=valid, other=0).to(narrow, bitcast=True).to(wide)
        new = tl.load(new_bits + slot + entry, mask=valid, other=0).to(narrow, bitcast=True).to(wide)
        magnitude = step_magnitude(old, new, fold, bits, wide)
        fitting = valid[:, None] & fits_width(magnitude[:, None], width[None, :], bits, wide)
        fits += tl.sum(fitting.to(tl.int32), 0)
        done += ENTRIES
    column = tl.arange(0, 8)
    tl.store(found + task * FOUND_WIDTH + FOUND_FITS + column, fits, mask=column < 6)
