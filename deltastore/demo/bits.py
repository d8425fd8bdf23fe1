"""Weights as raw bits, compared without anything of deltastore: the demo's own measure of the truth."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["bf16_bits", "differing_tensors", "fingerprint", "write_bits"]

Bits = np.ndarray[Any, np.dtype[np.uint16]]


def bf16_bits(tensors: Mapping[str, Tensor]) -> dict[str, Bits]:
    """Each tensor's elements as BF16 bits, rounded by torch. For a BF16 tensor a view, else a copy."""
    import torch

    return {
        name: tensor.detach().to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
        for name, tensor in tensors.items()
    }


def fingerprint(bits: Mapping[str, Bits]) -> str:
    """sha256 over the names and all bits, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(bits):
        digest.update(f"{name}\0{bits[name].shape}\0".encode())
        digest.update(np.ascontiguousarray(bits[name]).data)
    return digest.hexdigest()


def write_bits(bits: Mapping[str, Bits], path: Path) -> None:
    """All bits one after the other, in the order of the names."""
    with path.open("wb") as file:
        for name in sorted(bits):
            file.write(np.ascontiguousarray(bits[name]).data)


def differing_tensors(bits: Mapping[str, Bits], path: Path) -> list[str]:
    """Names of the tensors that are not, bit for bit, what ``write_bits`` left at ``path``."""
    with path.open("rb") as file:
        differing = [name for name in sorted(bits) if file.read(bits[name].nbytes) != bits[name].tobytes()]
        if file.read(1):
            differing.append("bytes after the last tensor")
    return differing
