"""F32 tensors that stand for narrower floats, rounded as they are read; raw bits that stand for a type."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from deltastore.format.dtypes import Dtype
from deltastore.layout.memory import is_torch

__all__ = ["Caster", "caster_of", "stands_for"]

Bits = np.ndarray[Any, Any]
Index = tuple[Any, ...]
Caster = Callable[[Index], Bits]
"""Reads part of a tensor as bits of another type."""

_NOT_IN_NUMPY: Final = frozenset({"BF16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0"})


def stands_for(given: Dtype, wanted: Dtype, cast: bool) -> bool:
    """Raw bits stand for a type that NumPy lacks; F32 for a narrower float, if the caller said so."""
    if wanted.name in _NOT_IN_NUMPY and given.name == f"U{wanted.bits}":
        return True
    return cast and given.name == "F32" and wanted.name in ("BF16", "F16")


def caster_of(tensor: Any, wanted: Dtype) -> Caster:
    """Reads part of an F32 tensor as the bits of a narrower float, rounded to nearest even."""
    if is_torch(tensor):
        torch = sys.modules["torch"]
        narrow = torch.bfloat16 if wanted.name == "BF16" else torch.float16

        def from_torch(index: Index) -> Bits:
            part = tensor.detach()[index]
            bits: Bits = part.to(narrow).view(torch.int16).cpu().numpy().view("<u2")
            return _with_one_nan(bits, part.cpu().numpy(), wanted)

        return from_torch

    def from_numpy(index: Index) -> Bits:
        part = np.asarray(tensor[index])
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = part.astype(_numpy_float(wanted))
        return _with_one_nan(rounded.view("<u2"), part, wanted)

    return from_numpy


def _numpy_float(wanted: Dtype) -> np.dtype[Any]:
    if wanted.name == "F16":
        return np.dtype("<f2")
    import ml_dtypes

    narrow: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return narrow


def _with_one_nan(bits: Bits, wide: Bits, wanted: Dtype) -> Bits:
    """Every NaN as the quiet one of its sign: libraries disagree, torch even with itself about strides."""
    nan = np.isnan(wide)
    if nan.any():
        quiet = 0x7FC0 if wanted.name == "BF16" else 0x7E00
        bits = np.where(nan, np.where(np.signbit(wide), quiet | 0x8000, quiet), bits).astype("<u2")
    return bits
