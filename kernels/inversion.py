"""What the inversion of an AdamW step is given, and what it gives.

The forward step took ``theta_old`` to the FP32 master weight ``theta``; ``m`` and ``v`` are moments after it:

    theta = (1 - lr * weight_decay) * theta_old - step_size * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)

in one of several orders of rounding. The inversion computes, every operation rounded to FP32, never fused:

    u    = (step_size * m) / (sqrt(v) * root_scale + eps)
    x    = (theta + u) * growth
    r    = (|theta| * of_value + |u| * of_update) + floor
    old  = bf16(x)      low = bf16(x - r)      high = bf16(x + r)

``bf16`` rounds to nearest even; a NaN becomes the quiet one of its sign. Where ``low`` and ``high`` are the
same bits (and no NaN), so was the old value; where they differ the element is *uncertain*: ``low``, ``old``
and ``high`` are its candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import InputError
from deltastore.kernels.blocks import Blocks

__all__ = ["MOST_UNCERTAIN", "RULE", "Inverted", "Outcome", "Span", "check_inversion"]

RULE: Final = np.dtype(
    [(name, "<f4") for name in ("step_size", "root_scale", "eps", "growth", "of_value", "of_update", "floor")]
)
"""The coefficients of one step of one parameter group, as in the formulas above."""

MOST_UNCERTAIN: Final = 8
"""A block with more uncertain elements than that is not settled by trying combinations."""


class Outcome(IntEnum):
    """What became of a block."""

    EXPLAINED = 0  # the old bits as inverted have the digest that was wanted
    SETTLED = 1  # so have they with some uncertain elements replaced by other candidates
    UNCHANGED = 2  # the new bits have that digest: nothing changed, whatever the inversion says
    UNEXPLAINED = 3  # nothing has


@dataclass(frozen=True, slots=True, eq=False)
class Span:
    """One box of ``Blocks``: its FP32 master weights and moments after the step, each of the box's shape.

    NumPy arrays or, for the GPU, torch tensors; of any strides. ``rule``: its row in the rules.
    """

    master: Any
    mean: Any
    square: Any
    rule: int


@dataclass(frozen=True, slots=True, eq=False)
class Inverted:
    """What an inversion gives beside new and old bits, for each of B blocks.

    ``digests`` (B,) uint64: of the new bits. ``outcomes`` (B,) uint8: an ``Outcome`` each. ``uncertain`` (B,)
    uint16: how many of its elements were uncertain.
    """

    digests: NDArray[np.uint64]
    outcomes: NDArray[np.uint8]
    uncertain: NDArray[np.uint16]


def check_inversion(
    blocks: Blocks,
    spans: Sequence[Span],
    rules: np.ndarray[Any, Any],
    wanted: NDArray[np.uint64],
    new: NDArray[np.uint16],
    old: NDArray[np.uint16],
) -> None:
    """InputError: ``wrong_shape``, ``wrong_dtype``, ``wrong_memory`` or ``bad_argument`` for a misfit."""
    if len(spans) != len(blocks.boxes) or wanted.shape != (len(blocks),) or wanted.dtype != np.uint64:
        raise InputError(
            "wrong_shape",
            f"{len(blocks.boxes)} boxes of {len(blocks)} blocks need as many spans and wanted digests "
            f"(uint64), not {len(spans)} and {wanted.shape} of {wanted.dtype}",
        )
    for buffer in (new, old):
        sound = buffer.dtype == np.dtype("<u2") and buffer.ndim == 1 and buffer.flags.c_contiguous
        if not sound or len(buffer) < blocks.elements or not buffer.flags.writeable:
            raise InputError(
                "wrong_memory", f"a buffer takes {blocks.elements} elements of uint16, in one contiguous axis"
            )
    if rules.dtype != RULE or rules.ndim != 1:
        raise InputError("wrong_dtype", f"rules are (n,) of {RULE}, not {rules.shape} of {rules.dtype}")
    for span, box in zip(spans, blocks.boxes, strict=True):
        for held in (span.master, span.mean, span.square):
            if held.shape != box.size or held.dtype != np.dtype("<f4"):
                raise InputError(
                    "wrong_shape",
                    f"a span of shape {list(held.shape)} and type {held.dtype} where its box is "
                    f"{list(box.size)} of float32",
                )
        if not 0 <= span.rule < len(rules):
            raise InputError("bad_argument", f"a span names rule {span.rule}; there are {len(rules)}")
