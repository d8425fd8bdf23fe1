"""The bits of torch tensors, as pieces hold them."""

from __future__ import annotations

from typing import Final

import torch

from deltastore.errors import InputError

__all__ = ["bits_of"]

_SIGNED: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """The elements' bits as signed integers of their width, sharing memory with ``tensor``; any strides.

    Any shape, any dtype of 1, 2, 4 or 8 bytes: BF16, FP8, FP32, C64 (one element, one integer), integers.

    Raises InputError: ``wrong_dtype`` for elements of another width, ``wrong_memory`` for a tensor that is
    not dense memory on a device.
    """
    if tensor.itemsize not in _SIGNED:
        raise InputError("wrong_dtype", f"elements of {tensor.itemsize} bytes; patches know 1, 2, 4 and 8")
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_conj() or tensor.is_neg():
        raise InputError(
            "wrong_memory", "a tensor whose elements do not stand in memory as they read; give a dense one"
        )
    return tensor.detach().view(_SIGNED[tensor.itemsize])
