"""The inversion of an AdamW step on one GPU, block by block (``kernels.inversion`` has the formulas).

``invert_kernel`` goes through all elements once. What it leaves unexplained, ``settle_kernel`` looks at
again: few blocks, or all where a hyper-parameter is wrong. No element is ever copied to the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from deltastore.errors import InputError
from deltastore.kernels.blocks import Blocks
from deltastore.kernels.inversion import RULE, Inverted, Outcome, Span
from deltastore.kernels.triton.boxes import (
    BOX_AT,
    BOX_ELEMENTS,
    BOX_FLAT,
    BOX_MEMORY,
    BOX_RULE,
    BOX_SEED,
    BOX_WIDTH,
    TASK_BLOCK,
    TASK_BOX,
    TASK_PART,
    TASK_WIDTH,
    BoxTables,
    box_tables,
    run_weights,
    words_of,
)
from deltastore.kernels.triton.inverse import RULE_WIDTH, inverted
from deltastore.kernels.triton.settle import SETTLE_WARPS, settle_kernel
from deltastore.kernels.triton.tensors import bits_of
from deltastore.kernels.triton.upload import Staged, current_device
from deltastore.kernels.triton.weights import block_weight, weight_table, weights_at

__all__ = ["ALIGNED", "ANYWHERE", "INVERT_WARPS", "JOINED", "invert", "invert_kernel"]

BLOCK = tl.constexpr(2048)

ALIGNED = tl.constexpr(0)
"""Boxes that all memory holds in one piece, from 16-byte boundaries on, cut where the digest's blocks are."""
JOINED = tl.constexpr(1)
"""Boxes that all memory holds in one piece."""
ANYWHERE = tl.constexpr(2)

_VECTOR: Final = 16
INVERT_WARPS: Final = (8, 8, 16)
"""By kind: no registers are spilled, and two programs fit one multiprocessor."""


@triton.jit
def loaded(address: tl.tensor, count: tl.tensor, kind: tl.constexpr) -> Any:
    """2048 words of 32 bits, of which the first ``count`` are there."""
    lane = tl.arange(0, BLOCK)
    memory = address.to(tl.pointer_type(tl.int32))
    if kind == ALIGNED:
        memory = tl.multiple_of(memory, 16)
    if count == BLOCK:
        words = tl.load(memory + lane)
    else:
        words = tl.load(memory + lane, mask=lane < count, other=0)
    return words


@triton.jit
def stored(memory: tl.tensor, bits: tl.tensor, count: tl.tensor, kind: tl.constexpr) -> None:
    """Store the first ``count`` of 2048 BF16 bits (uint32) from ``memory`` on."""
    lane = tl.arange(0, BLOCK)
    if kind == ALIGNED:
        memory = tl.multiple_of(memory.to(tl.int64).to(tl.pointer_type(tl.int16)), 16)
    short = bits.to(tl.int16)
    if count == BLOCK:
        tl.store(memory + lane, short)
    else:
        tl.store(memory + lane, short, mask=lane < count)


@triton.jit(do_not_specialize=["first"])
def invert_kernel(
    tasks: tl.tensor,
    boxes: tl.tensor,
    sides: tl.tensor,
    rules: tl.tensor,
    weights: tl.tensor,
    new: tl.tensor,
    old: tl.tensor,
    digests: tl.tensor,
    known: tl.tensor,
    uncertain: tl.tensor,
    first: tl.tensor,
    kind: tl.constexpr,
) -> None:
    """Bits of one block now and before the step; their digests, and how many elements are uncertain."""
    task = tasks + (tl.program_id(0) + first) * TASK_WIDTH
    box = boxes + tl.load(task + TASK_BOX) * BOX_WIDTH
    start = tl.load(task + TASK_PART).to(tl.int64) * BLOCK
    count = tl.minimum(tl.load(box + BOX_ELEMENTS) - start, BLOCK).to(tl.int32)
    lane = tl.arange(0, BLOCK)
    flat = tl.load(box + BOX_FLAT) + start
    memory = box + BOX_MEMORY
    shared = tl.load(box + BOX_SEED).to(tl.uint64, bitcast=True)
    if kind == ANYWHERE:
        places, masters, means, squares = words_of(box, sides, start, lane < count)
        factors = weights_at(places, weights, lane < count)
    else:
        masters = loaded(tl.load(memory) + start * 4, count, kind)
        means = loaded(tl.load(memory + 1) + start * 4, count, kind)
        squares = loaded(tl.load(memory + 2) + start * 4, count, kind)
        if kind == ALIGNED:
            factors = tl.load(weights + lane).to(tl.uint64, bitcast=True)
            shared *= block_weight(flat >> 11)
        else:
            factors = run_weights(flat, weights)
    rule = rules + tl.load(box + BOX_RULE) * RULE_WIDTH
    after, before, _, _, doubt = inverted(masters, means, squares, rule)
    at = tl.load(box + BOX_AT) + start
    stored(new + at, after, count, kind)
    stored(old + at, before, count, kind)
    counts = lane < count
    block = tl.load(task + TASK_BLOCK)
    total = tl.sum(after.to(tl.uint64) * factors, 0) * shared
    tl.store(digests + block, total.to(tl.int64, bitcast=True))
    total = tl.sum(tl.where(counts, before, 0).to(tl.uint64) * factors, 0) * shared
    tl.store(known + block, total.to(tl.int64, bitcast=True))
    tl.store(uncertain + block, tl.sum((doubt & counts).to(tl.int32), 0).to(tl.int64))


def invert(
    blocks: Blocks,
    spans: Sequence[Span],
    rules: np.ndarray[Any, Any],
    wanted: NDArray[np.uint64],
    new: torch.Tensor,
    old: torch.Tensor,
) -> Inverted:
    """Fill ``new`` and ``old`` (n,) with the bits of all boxes now and before the step.

    As the reference's, on one device: ``spans`` hold torch FP32 tensors of any strides, ``new`` and ``old``
    are contiguous int16 or uint16 tensors. On the current stream, which it waits for once, and once more
    where a block is not explained. O(elements); device memory about 50 bytes a block.

    Raises InputError ``wrong_shape``, ``wrong_dtype``, ``wrong_memory`` or ``bad_argument`` for arguments
    that contradict each other or stand on several devices.
    """
    memory = _checked(blocks, spans, rules, wanted, new, old)
    if not len(blocks):
        return Inverted(np.zeros(0, np.uint64), np.zeros(0, np.uint8), np.zeros(0, np.uint16))
    with current_device(new.device):
        tables = box_tables(blocks, memory, [span.rule for span in spans])
        return _invert(tables, rules, wanted, new.view(torch.int16), old.view(torch.int16))


def _checked(
    blocks: Blocks,
    spans: Sequence[Span],
    rules: np.ndarray[Any, Any],
    wanted: NDArray[np.uint64],
    new: torch.Tensor,
    old: torch.Tensor,
) -> list[tuple[torch.Tensor, ...]]:
    """The spans' memory, as int32 bits."""
    if len(spans) != len(blocks.boxes) or wanted.shape != (len(blocks),) or wanted.dtype != np.uint64:
        raise InputError(
            "wrong_shape",
            f"{len(blocks.boxes)} boxes of {len(blocks)} blocks need as many spans and wanted digests "
            f"(uint64), not {len(spans)} and {wanted.shape} of {wanted.dtype}",
        )
    for buffer in (new, old):
        sound = (
            isinstance(buffer, torch.Tensor)
            and buffer.dtype in (torch.int16, torch.uint16)
            and buffer.ndim == 1
            and buffer.is_contiguous()
        )
        if not sound or len(buffer) < blocks.elements or buffer.device != new.device:
            raise InputError(
                "wrong_memory",
                f"a buffer takes {blocks.elements} elements of int16 or uint16 in one contiguous axis, both "
                f"on one device; not {tuple(buffer.shape)} of {buffer.dtype}",
            )
    if rules.dtype != RULE or rules.ndim != 1:
        raise InputError("wrong_dtype", f"rules are (n,) of {RULE}, not {rules.shape} of {rules.dtype}")
    memory = []
    for span, size in zip(spans, (box.size for box in blocks.boxes), strict=True):
        if not 0 <= span.rule < len(rules):
            raise InputError("bad_argument", f"a span names rule {span.rule}; there are {len(rules)}")
        memory.append(tuple(_held(held, size, new) for held in (span.master, span.mean, span.square)))
    return memory


def _held(held: Any, size: tuple[int, ...], new: torch.Tensor) -> torch.Tensor:
    if not isinstance(held, torch.Tensor) or held.device != new.device:
        raise InputError(
            "wrong_memory", f"a span is not a torch tensor on {new.device}, where the buffers are"
        )
    if held.shape != size or held.dtype != torch.float32:
        raise InputError(
            "wrong_shape",
            f"a span of shape {list(held.shape)} and type {held.dtype} where its box is {list(size)} of "
            "float32",
        )
    return bits_of(held)


def _kinds(tables: BoxTables, new: torch.Tensor, old: torch.Tensor) -> NDArray[np.int64]:
    """What the blocks of each box are launched as: int64 (boxes,)."""
    at, flat = tables.boxes[:, 0], tables.boxes[:, 2]
    places = np.stack([*tables.boxes[:, 7:].T, new.data_ptr() + 2 * at, old.data_ptr() + 2 * at])
    aligned = (places % _VECTOR == 0).all(axis=0) & (flat % BLOCK.value == 0)
    kinds = np.full(len(flat), ANYWHERE.value, np.int64)
    kinds[tables.joined] = JOINED.value
    kinds[tables.joined & aligned] = ALIGNED.value
    return kinds


def _invert(
    tables: BoxTables,
    rules: np.ndarray[Any, Any],
    wanted: NDArray[np.uint64],
    new: torch.Tensor,
    old: torch.Tensor,
) -> Inverted:
    kinds = _kinds(tables, new, old)[tables.tasks[:, 0]]
    order = np.argsort(kinds, kind="stable")
    coefficients = np.ascontiguousarray(rules).view("<i4").reshape(-1, RULE_WIDTH.value)
    held = [tables.boxes, tables.sides, coefficients, weight_table()]
    tasks, *fixed = Staged(new.device, [tables.tasks[order], *held]).start()
    found = torch.empty((3, len(wanted)), dtype=torch.int64, device=new.device)
    bounds = np.searchsorted(kinds[order], np.arange(4)).tolist()
    for kind in range(3):
        first, count = bounds[kind], bounds[kind + 1] - bounds[kind]
        if count:
            invert_kernel[(count,)](
                tasks,
                *fixed,
                new,
                old,
                *found,
                first,
                kind=kind,
                num_warps=INVERT_WARPS[kind],
                enable_fp_fusion=False,
            )
    digests, known, uncertain = found.cpu().numpy()
    outcomes = np.full(len(wanted), Outcome.EXPLAINED, np.uint8)
    open_blocks = np.flatnonzero(known.view(np.uint64) != wanted)
    if len(open_blocks):
        staged = Staged(new.device, [tables.tasks[open_blocks], wanted.view(np.int64)[open_blocks]])
        tasks, targets = staged.start()
        results = torch.empty(len(open_blocks), dtype=torch.int32, device=new.device)
        settle_kernel[(len(open_blocks),)](
            tasks, *fixed, new, old, *found, targets, results, num_warps=SETTLE_WARPS, enable_fp_fusion=False
        )
        outcomes[open_blocks] = results.cpu().numpy()
    return Inverted(digests.view(np.uint64).copy(), outcomes, uncertain.astype(np.uint16))
