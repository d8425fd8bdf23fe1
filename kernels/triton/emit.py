"""Encoding, second step: the sections of every run, and digest differences, from the lists of ``compare``.

Fields of one word come from several entries and programs, so words are put together by atomic or on a body
of zeros; the result does not depend on their order.
"""

from __future__ import annotations

import triton
import triton.language as tl

from deltastore.kernels.triton.compare import (
    ENTRIES,
    FOUND_COUNT,
    FOUND_WIDTH,
    SPAN,
    fits_width,
    gathered,
    step_magnitude,
)
from deltastore.kernels.triton.element import fold_of, ordered
from deltastore.kernels.triton.locate import locate, may_meet
from deltastore.kernels.triton.tables import (
    LANES,
    ROW_ELEMENTS,
    ROW_END_OLD,
    ROW_END_RUN,
    ROW_END_WINDOW,
    ROW_FIRST_OLD,
    ROW_FIRST_RUN,
    ROW_FIRST_TASK,
    ROW_FIRST_WINDOW,
    ROW_FLOATING,
    ROW_RAW_WORD,
    ROW_WIDTH,
    RUN_BITS,
    RUN_FLOOR,
    RUN_HIGH_WORD,
    RUN_LOW_BITS,
    RUN_LOW_WORD,
    RUN_RESIDUE_WORD,
    RUN_WIDTH,
    WINDOW_FLAT,
    WINDOW_SEED,
    WINDOW_WIDTH,
)
from deltastore.kernels.triton.weights import weights_at

__all__ = ["emit_kernel", "emit_raw_kernel"]

MOST_RUNS = tl.constexpr(6)


@triton.jit
def put(body: tl.tensor, word: tl.tensor, bit: tl.tensor, value: tl.tensor, valid: tl.tensor) -> None:
    """Set the bits of ``value`` (uint64, below 2**32 unless ``bit`` is a multiple of 32) from ``bit`` of the
    section at ``word`` on.
    """
    at = body + word + (bit >> 5)
    moved = value << (bit & 31).to(tl.uint64)
    low = moved.to(tl.uint32).to(tl.int32, bitcast=True)
    high = (moved >> 32).to(tl.uint32).to(tl.int32, bitcast=True)
    tl.atomic_or(at, low, mask=valid & (low != 0), sem="relaxed")
    tl.atomic_or(at + 1, high, mask=valid & (high != 0), sem="relaxed")


@triton.jit
def difference(
    positions: tl.tensor,
    change: tl.tensor,
    valid: tl.tensor,
    row: tl.tensor,
    windows: tl.tensor,
    axes: tl.tensor,
    weights: tl.tensor,
) -> tl.tensor:
    """``change`` (uint64) times the weight of each position, which is 0 where no window holds it."""
    lowest = tl.min(tl.where(valid, positions, 0x7FFFFFFF), 0)
    highest = tl.max(tl.where(valid, positions, -1), 0)
    total = change * 0
    window = windows + tl.load(row + ROW_FIRST_WINDOW) * WINDOW_WIDTH
    left = tl.load(row + ROW_END_WINDOW) - tl.load(row + ROW_FIRST_WINDOW)
    while left > 0:
        if may_meet(window, lowest, highest):
            inside, _, flat = locate(positions, valid, window, axes)
            weight = weights_at(flat + tl.load(window + WINDOW_FLAT), weights, inside)
            weight *= tl.load(window + WINDOW_SEED).to(tl.uint64, bitcast=True)
            total += tl.where(inside, change * weight, 0)
        window += WINDOW_WIDTH
        left -= 1
    return total


@triton.jit(do_not_specialize=["first"])
def emit_kernel(
    rows: tl.tensor,
    task_rows: tl.tensor,
    windows: tl.tensor,
    axes: tl.tensor,
    found: tl.tensor,
    positions: tl.tensor,
    old_bits: tl.tensor,
    new_bits: tl.tensor,
    runs: tl.tensor,
    ranks: tl.tensor,
    weights: tl.tensor,
    body: tl.tensor,
    differences: tl.tensor,
    first: tl.tensor,
    bits: tl.constexpr,
    narrow: tl.constexpr,
    wide: tl.constexpr,
) -> None:
    """Write what one task lists into the runs of its row; ``ranks[task, r]``: elements of run r before it."""
    task = tl.program_id(0) + first
    number = tl.load(task_rows + task)
    row = rows + number * ROW_WIDTH
    fold = fold_of(tl.load(row + ROW_FLOATING), bits, wide)
    slot = tl.program_id(0).to(tl.int64) * SPAN
    run_count = (tl.load(row + ROW_END_RUN) - tl.load(row + ROW_FIRST_RUN)).to(tl.int32)
    count = tl.where(run_count > 0, tl.load(found + task * FOUND_WIDTH + FOUND_COUNT), 0)
    total = tl.zeros((ENTRIES,), tl.uint64)
    passed = tl.arange(0, 8) * 0
    done = count * 0
    while done < count:
        entry = done + tl.arange(0, ENTRIES)
        valid = entry < count
        at = tl.load(positions + slot + entry, mask=valid, other=0)
        old = tl.load(old_bits + slot + entry, mask=valid, other=0).to(narrow, bitcast=True).to(wide)
        new = tl.load(new_bits + slot + entry, mask=valid, other=0).to(narrow, bitcast=True).to(wide)
        change = new.to(tl.uint64) - old.to(tl.uint64)
        total += difference(at, change, valid, row, windows, axes, weights)
        magnitude = step_magnitude(old, new, fold, bits, wide)
        residues = ordered(new, fold, bits)
        r = run_count * 0
        while r < run_count:
            run = runs + (tl.load(row + ROW_FIRST_RUN) + r) * RUN_WIDTH
            width = tl.load(run + RUN_BITS)
            narrower = fits_width(magnitude, tl.load(run + RUN_FLOOR), bits, wide)
            chosen = valid & fits_width(magnitude, width, bits, wide) & (narrower == 0)
            ones = chosen.to(tl.int32)
            before = tl.load(ranks + task * MOST_RUNS + r)
            before += tl.sum(tl.where(tl.arange(0, 8) == r, passed, 0), 0)
            rank = before + tl.cumsum(ones, 0) - ones
            passed += tl.where(tl.arange(0, 8) == r, tl.sum(ones, 0), 0)
            low_bits = tl.load(run + RUN_LOW_BITS)
            low = (at & ((1 << low_bits) - 1)).to(tl.uint64)
            put(body, tl.load(run + RUN_LOW_WORD), rank * low_bits, low, chosen)
            one = (at * 0 + 1).to(tl.uint64)
            put(body, tl.load(run + RUN_HIGH_WORD), (at >> low_bits) + rank, one, chosen)
            keep = (tl.full((1,), 0, tl.uint64) - 1) >> (64 - width).to(tl.uint64)
            put(body, tl.load(run + RUN_RESIDUE_WORD), rank * width, residues.to(tl.uint64) & keep, chosen)
            r += 1
        done += ENTRIES
    whole = tl.sum(total, 0).to(tl.int64, bitcast=True)
    tl.atomic_add(differences + number, whole, mask=count > 0, sem="relaxed")


@triton.jit(do_not_specialize=["first"])
def emit_raw_kernel(
    rows: tl.tensor,
    task_rows: tl.tensor,
    windows: tl.tensor,
    axes: tl.tensor,
    old_windows: tl.tensor,
    old_axes: tl.tensor,
    weights: tl.tensor,
    body: tl.tensor,
    differences: tl.tensor,
    changed: tl.tensor,
    first: tl.tensor,
    bits: tl.constexpr,
    narrow: tl.constexpr,
) -> None:
    """Write 1024 elements of a chunk in raw form; difference and number changed are of this reading."""
    task = tl.program_id(0) + first
    number = tl.load(task_rows + task)
    row = rows + number * ROW_WIDTH
    at = (task - tl.load(row + ROW_FIRST_TASK)).to(tl.int32) * LANES + tl.arange(0, LANES)
    valid = at < tl.load(row + ROW_ELEMENTS).to(tl.int32)
    first_new = tl.load(row + ROW_FIRST_WINDOW)
    new, _, _ = gathered(at, valid, windows, axes, first_new, tl.load(row + ROW_END_WINDOW), narrow)
    first_old = tl.load(row + ROW_FIRST_OLD)
    old, _, _ = gathered(at, valid, old_windows, old_axes, first_old, tl.load(row + ROW_END_OLD), narrow)
    word = body + tl.load(row + ROW_RAW_WORD)
    if bits == 64:
        # Patches stand at multiples of four bytes: no place for a store of eight.
        low = new.to(tl.uint32).to(tl.int32, bitcast=True)
        high = (new >> 32).to(tl.uint32).to(tl.int32, bitcast=True)
        tl.store(word + 2 * at, low, mask=valid)
        tl.store(word + 2 * at + 1, high, mask=valid)
    else:
        tl.store(word.to(tl.pointer_type(narrow), bitcast=True) + at, new, mask=valid)
    change = new.to(tl.uint64) - old.to(tl.uint64)
    total = difference(at, change, valid, row, windows, axes, weights)
    tl.atomic_add(differences + number, tl.sum(total, 0).to(tl.int64, bitcast=True), sem="relaxed")
    ones = (valid & (new != old)).to(tl.int32)
    tl.atomic_add(changed + number, tl.sum(ones, 0).to(tl.int64), sem="relaxed")
