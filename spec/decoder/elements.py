"""SPEC 6: element types and ordered integers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]  # bits, ordered integers, indexes and digests all fit it, and it wraps at 2^64

FLOATS = dict.fromkeys(["F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"], 8)
FLOATS |= {"BF16": 16, "F16": 16, "F32": 32, "F64": 64}
WIDTHS = FLOATS | {"BOOL": 8, "F8_E8M0": 8, "C64": 64}
WIDTHS |= {f"{sign}{width}": width for sign in "UI" for width in (8, 16, 32, 64)}


def ordered(bits: U64, dtype: str) -> U64:
    """SPEC 6.1: o, from bits to ordered integers modulo 2^W and back."""
    if dtype not in FLOATS:
        return bits
    sign = WIDTHS[dtype] - 1
    return np.where(bits >> np.uint64(sign) == 1, bits ^ np.uint64(2**sign - 1), bits)
