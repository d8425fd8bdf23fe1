"""The element types of a stream: safetensors' that fill whole bytes (SPEC section "Element types")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from deltastore.errors import InputError

__all__ = ["DTYPES", "Dtype", "dtype_named"]


@dataclass(frozen=True, slots=True)
class Dtype:
    """One element type.

    ``name``    its safetensors name, e.g. ``"BF16"``
    ``bits``    width of an element: 8, 16, 32 or 64
    ``floating``  sign-and-magnitude bits, so that the ordered-integer map folds the negative half;
                otherwise the map is the identity
    """

    name: str
    bits: int
    floating: bool

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.bits // 8

    @property
    def storage(self) -> np.dtype[Any]:
        """Little-endian unsigned integers of the element's width: how bits are held everywhere."""
        return np.dtype(f"<u{self.itemsize}")


_FLOATS = {
    "F64": 64,
    "F32": 32,
    "F16": 16,
    "BF16": 16,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
}
_OTHERS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "U16": 16,
    "I16": 16,
    "U32": 32,
    "I32": 32,
    "U64": 64,
    "I64": 64,
    "F8_E8M0": 8,
    "C64": 64,
}

DTYPES: Final[dict[str, Dtype]] = {
    **{name: Dtype(name, bits, floating=True) for name, bits in _FLOATS.items()},
    **{name: Dtype(name, bits, floating=False) for name, bits in _OTHERS.items()},
}


def dtype_named(name: str) -> Dtype:
    """The element type with this safetensors name; ``InputError("wrong_dtype")`` if there is none."""
    found = DTYPES.get(name)
    if found is None:
        known = ", ".join(sorted(DTYPES))
        raise InputError("wrong_dtype", f"element type {name!r} is not one of {known}")
    return found
