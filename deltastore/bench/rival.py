"""The best rival encoding that ships: XOR of old and new bits, compressed with zstd level 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from deltastore.errors import InputError

__all__ = ["xor_zstd_bytes"]

Bits = np.ndarray[Any, Any]


def xor_zstd_bytes(old: Mapping[str, Bits], new: Mapping[str, Bits]) -> int:
    """Bytes that it takes, tensor by tensor. Needs zstandard (``pip install 'deltastore[bench]'``)."""
    try:
        import zstandard
    except ImportError:
        raise InputError(
            "bad_argument", "zstandard is not installed: pip install 'deltastore[bench]'"
        ) from None
    compressor = zstandard.ZstdCompressor(level=1)
    return sum(len(compressor.compress((bits ^ new[name]).data.cast("B"))) for name, bits in old.items())
