"""Fixed-width fields in a bit section (SPEC section "Bit sections").

A section is a whole number of little-endian 32-bit words; field i of w bits occupies bits [i*w, (i+1)*w),
bit b of a section being bit (b mod 8) of byte (b div 8). Unused high bits of the last word are zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deltastore.kernels.rows import REASONS

__all__ = ["pack_fields", "section_bytes", "unpack_fields"]

Unsigned = np.ndarray[Any, Any]
Octets = np.ndarray[Any, np.dtype[np.uint8]]


def section_bytes(bits: int) -> int:
    """Bytes of a section that holds ``bits`` bits."""
    return -(-bits // 32) * 4


def pack_fields(values: Unsigned, width: int) -> bytes:
    """The low ``width`` bits (0 to 64) of each of n unsigned values -> a section. O(n * width)."""
    count = len(values)
    size = section_bytes(count * width)
    if width in (8, 16, 32, 64):
        packed = values.astype(f"<u{width // 8}").tobytes()
    else:
        shifts = np.arange(width, dtype=values.dtype)
        bits = ((values[:, None] >> shifts) & values.dtype.type(1)).astype(np.uint8)
        packed = np.packbits(bits.ravel(), bitorder="little").tobytes()
    return packed.ljust(size, b"\0")


def unpack_fields(section: Octets, count: int, width: int) -> Unsigned:
    """A section of exactly ``section_bytes(count * width)`` bytes -> ``count`` unsigned values.

    The result is uint32 for width <= 32, else uint64. Raises ``ValueError`` when the section has another
    size or an unused bit is set.
    """
    if len(section) != section_bytes(count * width):
        raise ValueError(REASONS[3])
    wide = np.dtype("<u8") if width > 32 else np.dtype("<u4")
    if _tail_is_set(section, count * width):
        raise ValueError(REASONS[8])
    if width == 0 or count == 0:
        return np.zeros(count, dtype=wide)
    if width in (8, 16, 32, 64):
        return section[: count * width // 8].view(f"<u{width // 8}").astype(wide)
    bits = np.unpackbits(section, count=count * width, bitorder="little").reshape(count, width)
    values = np.zeros(count, dtype=wide)
    for place in range(width):
        values |= np.left_shift(bits[:, place].astype(wide), place, dtype=wide)
    return values


def _tail_is_set(section: Octets, used: int) -> bool:
    """Whether any bit at or above ``used`` is set."""
    whole, left = divmod(used, 8)
    if left and int(section[whole]) >> left:
        return True
    return bool(section[whole + (1 if left else 0) :].any())
