"""Which instructions the compiled kernels use."""

from __future__ import annotations

from enum import IntEnum

from deltastore.kernels.cpu import _native

__all__ = ["Instructions", "supported_instructions"]


class Instructions(IntEnum):
    """Every result is the same with each of them. ``BEST`` takes what the processor has."""

    PORTABLE = 0
    AVX2 = 1
    AVX512 = 2
    BEST = 2


def supported_instructions() -> Instructions:
    """The best that this processor has."""
    return Instructions(_native.supported_instructions())
