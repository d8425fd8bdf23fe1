"""How the examples show bytes."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Part", "dump", "hexadecimal", "listed"]

Part = tuple[bytes, str]
"""Bytes of an object, and what they are."""


def hexadecimal(data: bytes) -> str:
    """Pairs of digits."""
    return data.hex(" ").upper()


def dump(parts: Sequence[Part], *, offsets: bool = False) -> str:
    """A line for each part, of 16 bytes at most; with offsets, or with the bytes first."""
    lines, at = [], 0
    wide = max(min(len(data), 16) for data, _ in parts) * 3 - 1
    for data, label in parts:
        for start in range(0, max(len(data), 1), 16):
            octets = hexadecimal(data[start : start + 16])
            front = f"{at + start:>4}  " if offsets else ""
            lines.append(f"{front}{octets:<{wide}}  {'' if start else label}".rstrip())
        at += len(data)
    return "\n".join(lines)


def listed(numbers: Sequence[int]) -> str:
    """Numbers in a row."""
    return " ".join(map(str, numbers))
