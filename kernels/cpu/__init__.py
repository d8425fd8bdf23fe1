"""Kernels in C++: the answers of ``deltastore.kernels.reference`` bit for bit, at the speed of memory.

The GIL is released. ``threads`` says how many threads a call may use; they live as long as the call. No
result depends on it, nor on the instructions that the processor has.
"""

from __future__ import annotations

try:
    from deltastore.kernels.cpu import _native  # noqa: F401
except ImportError as error:
    raise ImportError(
        "the compiled kernels of deltastore are missing or of another Python: "
        "run `pip install -e .` in the repository (it needs a C++17 compiler), or install a wheel"
    ) from error

from deltastore.kernels.cpu.apply import apply, check, mismatches, resolve, scatter
from deltastore.kernels.cpu.block_digests import digest_blocks
from deltastore.kernels.cpu.digest import digest_chunks, digest_range
from deltastore.kernels.cpu.encode import encode_changed, encode_listed
from deltastore.kernels.cpu.instructions import Instructions, supported_instructions
from deltastore.kernels.cpu.inversion import invert
from deltastore.kernels.cpu.merge import merge

__all__ = [
    "Instructions",
    "apply",
    "check",
    "digest_blocks",
    "digest_chunks",
    "digest_range",
    "encode_changed",
    "encode_listed",
    "invert",
    "merge",
    "mismatches",
    "resolve",
    "scatter",
    "supported_instructions",
]
