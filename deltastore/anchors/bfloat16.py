"""The Zarr v3 data type ``bfloat16`` for zarr-python, which has none of its own (extra ``zarr``).

Releases of zarr-python that load the entry point group ``zarr.data_type`` (3.4 does, 3.1 does not) find it by
themselves where deltastore is installed; under the others call ``register`` before opening an anchor.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Self, overload

import ml_dtypes
import numpy as np
import zarr.dtype
import zarr.errors
from zarr.core.dtype.common import HasEndianness, HasItemSize
from zarr.dtype import ZDType, data_type_registry

__all__ = ["BFloat16", "DataTypeValidationError", "register"]

# zarr-python moved it after 3.1, and warns of the old place.
DataTypeValidationError: Final[type[Exception]] = (
    vars(zarr.errors).get("DataTypeValidationError") or zarr.dtype.DataTypeValidationError
)

_NATIVE: Final[np.dtype[Any]] = np.dtype(ml_dtypes.bfloat16)
_NAMED: Final = {"NaN": 0x7FC0, "Infinity": 0x7F80, "-Infinity": 0xFF80}
_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]{4}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class BFloat16(ZDType[np.dtype[Any], Any], HasEndianness, HasItemSize):
    """Two-byte brain floating point, little-endian; bits pass through unchanged.

    ``HasEndianness`` matters: without it zarr-python writes no byte order, and tensorstore then refuses the
    array. Zarr v2 has no such type.
    """

    dtype_cls = type(_NATIVE)
    _zarr_v3_name: ClassVar[Literal["bfloat16"]] = "bfloat16"

    @property
    def item_size(self) -> int:
        """Bytes of an element."""
        return 2

    @classmethod
    def from_native_dtype(cls, dtype: np.dtype[Any]) -> Self:
        """The data type of a NumPy dtype; ``DataTypeValidationError`` unless that is ml_dtypes' bfloat16."""
        if dtype != _NATIVE:
            raise DataTypeValidationError(f"{dtype} is not {_NATIVE}")
        return cls()

    def to_native_dtype(self) -> np.dtype[Any]:
        """ml_dtypes' bfloat16, which knows no byte order; ``ValueError`` for a big-endian array."""
        if self.endianness != "little":
            raise ValueError("big-endian bfloat16 cannot be read: write the array little-endian")
        return _NATIVE

    @overload
    def to_json(self, zarr_format: Literal[2]) -> Any: ...

    @overload
    def to_json(self, zarr_format: Literal[3]) -> str: ...

    def to_json(self, zarr_format: Literal[2, 3]) -> Any:
        """The name in ``zarr.json``; ``ValueError`` for Zarr v2."""
        _check_format(zarr_format)
        return self._zarr_v3_name

    def cast_scalar(self, data: object) -> Any:
        """A number as a bfloat16 scalar; ``TypeError`` for anything else."""
        if not self._check_scalar(data):
            raise TypeError(f"{data!r} is not a number")
        return _NATIVE.type(data)

    def default_scalar(self) -> Any:
        """+0.0."""
        return _NATIVE.type(0)

    def from_json_scalar(self, data: Any, *, zarr_format: Literal[2, 3]) -> Any:
        """A fill value: a number, ``NaN``, ``Infinity``, ``-Infinity``, or the bits as ``0x7fc1``."""
        _check_format(zarr_format)
        if isinstance(data, str) and data in _NAMED:
            return _from_bits(_NAMED[data])
        if isinstance(data, str) and _HEXADECIMAL.fullmatch(data):
            return _from_bits(int(data, 16))
        if isinstance(data, int | float) and not isinstance(data, bool):
            return _NATIVE.type(data)
        raise TypeError(f"{data!r} is not a fill value of bfloat16")

    def to_json_scalar(self, data: object, *, zarr_format: Literal[2, 3]) -> float | str:
        """The inverse of ``from_json_scalar``, to the bit."""
        _check_format(zarr_format)
        scalar = self.cast_scalar(data)
        bits = int(np.asarray(scalar).view(np.uint16))
        for name, named in _NAMED.items():
            if bits == named:
                return name
        value = float(scalar)
        return f"0x{bits:04x}" if math.isnan(value) else value

    @classmethod
    def _from_json_v2(cls, data: Any) -> Self:
        raise DataTypeValidationError(f"{data!r}: bfloat16 is a data type of Zarr v3 only")

    @classmethod
    def _from_json_v3(cls, data: Any) -> Self:
        if data != cls._zarr_v3_name:
            raise DataTypeValidationError(f"{data!r} is not {cls._zarr_v3_name!r}")
        return cls()

    def _check_scalar(self, data: object) -> bool:
        return isinstance(data, int | float | np.number | _NATIVE.type) and not isinstance(data, bool)


def register() -> None:
    """Make zarr-python know ``bfloat16``; harmless when it does already."""
    data_type_registry.register(BFloat16._zarr_v3_name, BFloat16)


def _check_format(zarr_format: int) -> None:
    if zarr_format != 3:
        raise ValueError("bfloat16 is a data type of Zarr v3 only: write the array with zarr_format=3")


def _from_bits(bits: int) -> Any:
    return np.array(bits, dtype=np.uint16).view(_NATIVE)[()]
