"""Patches and packs written field by field, of any width, or breaking a rule: SPEC 9 and 10."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from deltastore.format.dtypes import Dtype

Fields = dict[str, Any]


def words(*values: int) -> bytes:
    """32-bit words."""
    return struct.pack(f"<{len(values)}I", *values)


def section(numbers: Sequence[int], width: int) -> bytes:
    """A bit section that holds numbers of ``width`` bits, lowest bit first."""
    joined = sum(number << width * place for place, number in enumerate(numbers))
    return joined.to_bytes(-(-len(numbers) * width // 32) * 4, "little")


def ordered(bits: int, dtype: Dtype) -> int:
    """SPEC 6.1: o."""
    negative = dtype.floating and bits >> (dtype.bits - 1)
    return bits ^ (2 ** (dtype.bits - 1) - 1) if negative else bits


def moved(bits: int, step: int, dtype: Dtype) -> int:
    """The bits that lie ``step`` ordered integers above."""
    return ordered((ordered(bits, dtype) + step) % 2**dtype.bits, dtype)


@dataclass(frozen=True)
class Run:
    """A run of a patch: new bits by position. The other fields go into its header as they are."""

    width: int
    new: dict[int, int]
    low: int = 0
    reserved: int = 0

    def header(self) -> bytes:
        """Eight bytes."""
        return struct.pack("<BBHI", self.width, self.low, self.reserved, len(self.new))

    def body(self, n: int, dtype: Dtype) -> bytes:
        """Low bits, high bits and residues."""
        positions = sorted(self.new)
        high = [0] * (len(positions) + ((n - 1) >> self.low))
        for place, position in enumerate(positions):
            high[(position >> self.low) + place] = 1
        lows = [position % 2**self.low for position in positions]
        residues = [ordered(self.new[position], dtype) % 2**self.width for position in positions]
        return section(lows, self.low) + section(high, 1) + section(residues, self.width)


def patch_of(n: int, dtype: Dtype, *runs: Run) -> bytes:
    """A patch in encoding 0."""
    heads = b"".join(run.header() for run in runs)
    return words(len(runs)) + heads + b"".join(run.body(n, dtype) for run in runs)


@dataclass(frozen=True)
class Row:
    """A row of a pack with its patch; what is None is worked out."""

    array: int
    chunk: int
    patch: bytes
    count: int
    encoding: int = 0
    difference: int = 0
    length: int | None = None
    check: bytes | None = None

    def but(self, **members: Any) -> Row:
        """The row with other members."""
        return replace(self, **members)

    def index(self) -> bytes:
        """44 bytes."""
        length = len(self.patch) if self.length is None else self.length
        check = hashlib.sha256(self.patch).digest()[:16] if self.check is None else self.check
        numbers = struct.pack(
            "<5IQ", self.array, self.chunk, length, self.count, self.encoding, self.difference
        )
        return numbers + check


def pack_of(*rows: Row, version: int = 7) -> bytes:
    """A pack."""
    body = b"".join(row.patch for row in rows)
    header = struct.pack(
        "<8sHHIQ16sQ16x", b"\x93DSPACK\n", 1, 0, len(rows), version, bytes(range(16)), len(body)
    )
    return header + b"".join(row.index() for row in rows) + body
