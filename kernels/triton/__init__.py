"""Kernels for a GPU in Triton: the answers of ``deltastore.kernels.reference`` bit for bit.

Weights are torch tensors on one device (``bits_of`` gives their bits). A pack is uploaded, checked and cut
into tasks while the engine serves (``DevicePack``, ``check``); the pause is ``apply`` alone.
"""

from __future__ import annotations

try:
    import torch  # noqa: F401
    import triton  # noqa: F401
except ImportError as error:
    raise ImportError(
        "the GPU kernels of deltastore need torch and triton: run pip install 'deltastore[gpu]'"
    ) from error

from deltastore.kernels.triton.apply import apply
from deltastore.kernels.triton.block_digests import digest_blocks
from deltastore.kernels.triton.check import check
from deltastore.kernels.triton.digest import digest_chunks
from deltastore.kernels.triton.encode import encode_changed
from deltastore.kernels.triton.inversion import invert
from deltastore.kernels.triton.mismatches import mismatches
from deltastore.kernels.triton.pack import DevicePack
from deltastore.kernels.triton.tensors import bits_of

__all__ = [
    "DevicePack",
    "apply",
    "bits_of",
    "check",
    "digest_blocks",
    "digest_chunks",
    "encode_changed",
    "invert",
    "mismatches",
]
