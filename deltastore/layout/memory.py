"""Live tensors as bits: NumPy arrays and torch tensors, seen as integers of their width without a copy.

Strides are kept, so non-contiguous tensors work. Nothing here imports torch: a torch tensor can only be
given by a process that has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from deltastore.errors import InputError
from deltastore.format.dtypes import DTYPES, Dtype
from deltastore.layout.device import device_bits, is_on_device, shadow_of

__all__ = [
    "LiveTensors",
    "bits_of",
    "check_named",
    "element_type",
    "is_torch",
    "memory_of",
    "place_of",
    "same_memory",
]

Bits = np.ndarray[Any, Any]
LiveTensors = Mapping[str, Any]
"""Tensor name -> NumPy array, or torch tensor in CPU or GPU memory."""

_NAMES: Final = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
}


def check_named(tensors: object) -> None:
    """``InputError("bad_argument")`` unless it is a mapping whose keys are names."""
    if not isinstance(tensors, Mapping):
        kind = type(tensors).__name__
        raise InputError("bad_argument", f"tensors are a mapping of names to tensors, not a {kind}")
    for name in tensors:
        if not isinstance(name, str):
            raise InputError("bad_argument", f"a tensor's name is text, not {name!r:.80}")


def is_torch(tensor: object) -> bool:
    """Whether it is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def element_type(name: str, tensor: Any) -> Dtype:
    """The element type of a live tensor; ``InputError("wrong_dtype")`` where the format has none for it."""
    dtype = tensor.dtype if is_torch(tensor) else _numpy(name, tensor).dtype.name
    spelled = str(dtype).removeprefix("torch.")
    if spelled not in _NAMES:
        raise InputError("wrong_dtype", f"tensor {name!r} has element type {spelled}", where=name)
    return DTYPES[_NAMES[spelled]]


def bits_of(name: str, tensor: Any) -> Any:
    """The tensor's memory as integers of its element width, same shape and strides, no copy.

    A NumPy array of unsigned ones; for a tensor on a GPU, a torch tensor of signed ones. Raises
    ``InputError("wrong_memory")`` for memory that cannot be seen so: a device of another kind, a sharded or
    lazily conjugated tensor, foreign byte order.
    """
    view = _torch_bits(name, tensor) if is_torch(tensor) else _numpy_bits(name, tensor)
    if _overlaps_itself(shadow_of(view)):
        raise InputError(
            "wrong_memory", f"tensor {name!r} has elements that share memory: copy it first", where=name
        )
    return view


def _overlaps_itself(view: Bits) -> bool:
    """Whether elements may share memory, as in an expanded tensor or a sliding window."""
    if not view.size or view.flags.c_contiguous:
        return False
    reach = view.itemsize
    for step, length in sorted(zip(map(abs, view.strides), view.shape, strict=True)):
        if length > 1 and step < reach:
            return True
        reach += step * (length - 1)
    return False


def same_memory(first: Any, second: Any) -> bool:
    """Whether two views are of exactly the same elements, as tied weights are."""
    return memory_of(first) == memory_of(second)


def memory_of(view: Any) -> tuple[object, ...]:
    """What elements a view is of: equal for two views of exactly the same ones."""
    shadow = shadow_of(view)
    return (shadow.__array_interface__["data"][0], shadow.shape, shadow.strides, shadow.dtype)


def place_of(tensor: Any) -> tuple[object, ...]:
    """Where the memory of a torch tensor is: another answer means that it was given other memory."""
    return (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride())


def _numpy(name: str, tensor: Any) -> Bits:
    if not isinstance(tensor, np.ndarray):
        kind = type(tensor).__name__
        raise InputError(
            "wrong_memory", f"tensor {name!r} is a {kind}, not a NumPy array or torch tensor", where=name
        )
    return tensor


def _numpy_bits(name: str, tensor: Any) -> Bits:
    array = _numpy(name, tensor)
    width = element_type(name, array).itemsize
    if width > 1 and not array.dtype.newbyteorder("=").str == array.dtype.str:
        raise InputError("wrong_memory", f"tensor {name!r} is not in the machine's byte order", where=name)
    # A subclass would bring rules of its own: a masked array hides elements, a matrix has two axes always.
    return np.asarray(array).view(f"<u{width}")


def _torch_bits(name: str, tensor: Any) -> Any:
    torch = sys.modules["torch"]
    width = element_type(name, tensor).itemsize
    if hasattr(tensor, "to_local"):
        raise InputError("wrong_memory", f"tensor {name!r} is sharded: give its full tensor", where=name)
    reachable = tensor.device.type == "cpu" or is_on_device(tensor)
    if not reachable or tensor.layout != torch.strided:
        place = f"on device {tensor.device}, layout {tensor.layout}"
        raise InputError("wrong_memory", f"tensor {name!r} is {place}, not dense memory", where=name)
    if tensor.is_conj() or tensor.is_neg():
        raise InputError(
            "wrong_memory", f"tensor {name!r} is lazily conjugated: resolve it first", where=name
        )
    bits = device_bits(tensor, width)
    if is_on_device(tensor):
        return bits
    plain: Bits = bits.numpy()
    return plain.view(f"<u{width}")
