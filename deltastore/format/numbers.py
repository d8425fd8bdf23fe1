"""Bits as the numbers that they stand for, for people (SPEC section "Element types").

Nothing computes with these: a stream knows bits only.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from deltastore.format.dtypes import Dtype

__all__ = ["bits_text", "number_text"]

_SMALL: Final = {
    "F8_E4M3": (4, 7, "finite"),
    "F8_E5M2": (5, 15, "ieee"),
    "F8_E4M3FNUZ": (4, 8, "unsigned zero"),
    "F8_E5M2FNUZ": (5, 16, "unsigned zero"),
}
"""Bits of the exponent, its bias, and which patterns are no finite numbers."""


def bits_text(dtype: Dtype, bits: int) -> str:
    """The bits in hexadecimal, two digits for each byte, the most significant one first."""
    return f"{bits:0{dtype.bits // 4}X}"


def number_text(dtype: Dtype, bits: int) -> str:
    """The number, in digits enough to tell it from its neighbours: ``-0.0``, ``nan``, ``1.5``, ``true``."""
    name, width = dtype.name, dtype.bits
    if name == "BOOL":
        return {0: "false", 1: "true"}.get(bits, str(bits))
    if name[0] == "U":
        return str(bits)
    if name[0] == "I":
        return str(bits - (bits >> (width - 1) << width))
    if name == "C64":
        real, imaginary = (_native(part, "<u4", "<f4") for part in (bits & 0xFFFFFFFF, bits >> 32))
        return f"{real}{'' if imaginary[0] == '-' else '+'}{imaginary}j"
    if name == "BF16":
        return _native(bits << 16, "<u4", "<f4")
    if name == "F8_E8M0":
        return "nan" if bits == 0xFF else str(math.ldexp(1.0, bits - 127))
    if name in _SMALL:
        return str(_small(bits, *_SMALL[name]))
    return _native(bits, f"<u{width // 8}", f"<f{width // 8}")


def _native(bits: int, unsigned: str, floating: str) -> str:
    return str(np.array(bits, unsigned).view(floating)[()])


def _small(bits: int, exponent_bits: int, bias: int, kind: str) -> float:
    """A number of 8 bits: sign, exponent, fraction."""
    fraction_bits = 7 - exponent_bits
    exponent, fraction = (bits & 0x7F) >> fraction_bits, bits & ((1 << fraction_bits) - 1)
    sign = -1.0 if bits & 0x80 else 1.0
    if kind == "unsigned zero" and bits == 0x80:
        return math.nan
    if kind == "finite" and bits & 0x7F == 0x7F:
        return math.nan
    if kind == "ieee" and exponent == (1 << exponent_bits) - 1:
        return math.nan if fraction else sign * math.inf
    if exponent == 0:
        return sign * math.ldexp(fraction, 1 - bias - fraction_bits)
    return sign * math.ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits)
