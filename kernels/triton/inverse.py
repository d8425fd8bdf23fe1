"""Inside kernels: one AdamW step taken back (``kernels.inversion`` has the formulas), and BF16 bits.

Bits are those of the reference only where every operation is rounded by itself: launch and compile with
``enable_fp_fusion=False``. Denormals stay: nothing here is compiled to flush them.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

__all__ = ["RULE_WIDTH", "bf16_bits", "inverted"]

RULE_WIDTH = tl.constexpr(7)
"""FP32 coefficients of a rule, in the order of the dtype ``RULE``."""


@triton.jit
def coefficient(rule: tl.tensor, number: tl.constexpr) -> Any:
    """One FP32 of a rule, whose bits stand in int32."""
    return tl.load(rule + number).to(tl.float32, bitcast=True)


@triton.jit
def quiet_nan(source: tl.tensor) -> Any:
    """The quiet BF16 NaN with the sign of FP32 bits (int32).

    The sign of a NaN that arithmetic makes or passes on is the processor's choice, so it is worked out from
    the operands, as x86 has it: the first operand that is a NaN, and a negative one where there is none.
    """
    return ((source.to(tl.uint32, bitcast=True) >> 16) & 0x8000) | 0x7FC0


@triton.jit
def rounded(values: tl.tensor) -> Any:
    """FP32 values that are no NaN as BF16 bits, in uint32: rounded to nearest even."""
    bits = values.to(tl.uint32, bitcast=True)
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


@triton.jit
def bf16_bits(values: tl.tensor, quiet: tl.tensor) -> Any:
    """FP32 values as BF16 bits, in uint32: rounded to nearest even, a NaN as ``quiet``."""
    return tl.where(values != values, quiet, rounded(values))


@triton.jit
def inverted(masters: tl.tensor, means: tl.tensor, squares: tl.tensor, rule: tl.tensor) -> Any:
    """(new, old, low, high, uncertain): uint32 bits, and a mask. The first three are FP32 as int32 bits."""
    master = masters.to(tl.float32, bitcast=True)
    mean = means.to(tl.float32, bitcast=True)
    square = squares.to(tl.float32, bitcast=True)
    step = coefficient(rule, 0) * mean
    update = tl.div_rn(step, tl.sqrt_rn(square) * coefficient(rule, 1) + coefficient(rule, 2))
    before = (master + update) * coefficient(rule, 3)
    reach = tl.abs(master) * coefficient(rule, 4) + tl.abs(update) * coefficient(rule, 5)
    reach = reach + coefficient(rule, 6)
    source = tl.where(
        step != step, tl.where(mean != mean, means, -1), tl.where(square != square, squares, -1)
    )
    quiet = quiet_nan(tl.where(master != master, masters, source))
    below, above = before - reach, before + reach
    # One of both at least is a NaN where ``before`` or ``reach`` is, or where infinities cancel out.
    uncertain = (rounded(below) != rounded(above)) | (below != below) | (above != above)
    low, high = bf16_bits(below, quiet), bf16_bits(above, quiet)
    return bf16_bits(master, quiet), bf16_bits(before, quiet), low, high, uncertain
