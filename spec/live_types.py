"""The NumPy type of every element type of SPEC section 6."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from deltastore.format.dtypes import DTYPES

_OWN: dict[str, Any] = {
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    "BF16": ml_dtypes.bfloat16,
    "BOOL": np.bool_,
    "C64": np.complex64,
}
_FAMILIES = {"F": "float", "I": "int", "U": "uint"}

LIVE_TYPES: dict[str, np.dtype[Any]] = {
    dtype.name: np.dtype(_OWN.get(dtype.name) or f"{_FAMILIES[dtype.name[0]]}{dtype.bits}")
    for dtype in DTYPES.values()
}
