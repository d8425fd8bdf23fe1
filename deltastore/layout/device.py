"""Live tensors on a GPU, seen as torch integers of their width. Nothing here imports torch."""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np

__all__ = ["device_bits", "host_copy", "is_on_device", "shadow_of"]

_KIND: Final = "cuda"

Bits = np.ndarray[Any, Any]


def is_on_device(tensor: Any) -> bool:
    """Whether it is a torch tensor, or a view of one, in the memory of a GPU."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor) and tensor.device.type == _KIND


def device_bits(tensor: Any, itemsize: int) -> Any:
    """The tensor as signed integers of ``itemsize`` bytes, sharing its memory; any strides."""
    torch = sys.modules["torch"]
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().view(kinds[itemsize])


def host_copy(view: Any) -> Bits:
    """The bits of a view of ``device_bits``, unsigned, in memory of their own. Waits for the device."""
    copied: Bits = view.cpu().numpy()
    return copied.view(f"<u{copied.dtype.itemsize}")


class _Shadow:
    """What NumPy asks of memory before it makes an array of it."""

    def __init__(self, view: Any) -> None:
        width = view.element_size()
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"<u{width}",
            "shape": tuple(view.shape),
            "strides": tuple(stride * width for stride in view.stride()),
            "data": (view.data_ptr(), False),
        }


def shadow_of(view: Any) -> Bits:
    """A NumPy array of the same address, shape and strides: for questions about memory, never to be read.

    A NumPy array is its own shadow.
    """
    return view if isinstance(view, np.ndarray) else np.asarray(_Shadow(view))
