"""Where in memory a parameter or a held box lies. Nothing here imports torch."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from deltastore.layout.memory import is_torch
from deltastore.layout.sharded import is_sharded

__all__ = ["Memory", "element_of", "is_plain", "local_of", "memory_of"]


@dataclass(frozen=True, slots=True)
class Memory:
    """Where the elements of a tensor are. ``strides``: in elements. ``element``: NumPy's name of the type."""

    device: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: str
    width: int

    @property
    def first(self) -> int:
        """The address of its lowest byte."""
        return self.address + self.width * self._reach(lowest=True)

    @property
    def end(self) -> int:
        """The address behind its highest byte."""
        return self.address + self.width * (self._reach(lowest=False) + 1)

    def _reach(self, *, lowest: bool) -> int:
        return sum(
            stride * (length - 1)
            for stride, length in zip(self.strides, self.shape, strict=True)
            if (stride < 0) == lowest
        )

    @property
    def contiguous(self) -> bool:
        """Whether its elements stand row-major without gaps."""
        each = 1
        for stride, length in zip(reversed(self.strides), reversed(self.shape), strict=True):
            if length > 1 and stride != each:
                return False
            each *= length
        return True

    def is_same(self, other: Memory) -> bool:
        """Whether both have exactly the same elements in the same places."""
        return (self.device, self.address, self.shape, self.element) == (
            *(other.device, other.address, other.shape, other.element),
        ) and all(
            length == 1 or mine == its
            for length, mine, its in zip(self.shape, self.strides, other.strides, strict=True)
        )


def local_of(tensor: Any) -> Any:
    """What this process holds of a distributed tensor; another tensor itself."""
    if not is_sharded(tensor):
        return tensor
    with sys.modules["torch"].no_grad():
        return tensor.to_local()


def is_plain(tensor: object) -> bool:
    """Whether it is a NumPy array, or a torch tensor whose memory holds its elements."""
    if not is_torch(tensor):
        return isinstance(tensor, np.ndarray)
    torch = sys.modules["torch"]
    # A subclass with a dispatch of its own wraps other tensors: quantised ones, for example.
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:  # type: ignore[attr-defined]
        return False
    return bool(tensor.layout == torch.strided and tensor.device.type != "meta")  # type: ignore[attr-defined]


def element_of(tensor: Any) -> str:
    """NumPy's name of its element type, or torch's where NumPy has none."""
    return tensor.dtype.name if isinstance(tensor, np.ndarray) else str(tensor.dtype).removeprefix("torch.")


def memory_of(tensor: Any) -> Memory | None:
    """Where a local tensor lies; None for one that has no elements, or no memory of its own."""
    if not is_plain(tensor) or 0 in tensor.shape:
        return None
    shape = tuple(tensor.shape)
    if isinstance(tensor, np.ndarray):
        strides = tuple(step // tensor.itemsize for step in tensor.strides)
        whole = all(step % tensor.itemsize == 0 for step in tensor.strides)
        address = tensor.__array_interface__["data"][0]
        return Memory("cpu", address, shape, strides, tensor.dtype.name, tensor.itemsize) if whole else None
    address = tensor.data_ptr()
    if not address:
        return None
    width = tensor.element_size()
    return Memory(str(tensor.device), address, shape, tuple(tensor.stride()), element_of(tensor), width)
