"""Packs that break one rule each: SPEC section 10."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from deltastore.format.dtypes import DTYPES
from deltastore.format.pack import HEADER_BYTES, ROW, index_bytes
from deltastore.format.table import TensorTable
from spec.vectors.make.by_hand import Row, Run, pack_of, patch_of, words

Fields = dict[str, Any]
Cases = dict[str, tuple[bytes, str, str]]

_BF16 = DTYPES["BF16"]


def _headers(good: bytes) -> Cases:
    count = int.from_bytes(good[12:16], "little")

    def poked(at: int, value: bytes) -> bytes:
        return good[:at] + value + good[at + len(value) :]

    def rows_changed(change: Callable[[Any], Any]) -> bytes:
        rows = np.frombuffer(good, dtype=ROW, count=count, offset=HEADER_BYTES).copy()
        rows = change(rows)
        return good[:HEADER_BYTES] + bytes(rows.tobytes()) + good[index_bytes(count) :]

    def set_row(number: int, member: str, value: int) -> bytes:
        def change(rows: Any) -> Any:
            rows[member][number] = value
            return rows

        return rows_changed(change)

    return {
        "empty": (b"", "bad_index", "DS040"),
        "cut in the header": (good[:63], "bad_index", "DS040"),
        "cut in the index": (good[: index_bytes(count) - 1], "bad_index", "DS040"),
        "another magic": (poked(0, b"\x92"), "bad_index", "DS040"),
        "a magic spoilt by line ends": (poked(7, b"\r"), "bad_index", "DS040"),
        "a newer format": (poked(8, b"\2\0"), "newer_format", "DS040"),
        "the newest format": (poked(8, b"\xff\xff"), "newer_format", "DS040"),
        "format 0": (poked(8, b"\0\0"), "bad_index", "DS040"),
        "a flag": (poked(10, b"\1\0"), "bad_index", "DS040"),
        "the highest flag": (poked(10, b"\0\x80"), "bad_index", "DS040"),
        "a reserved byte": (poked(63, b"\1"), "bad_index", "DS040"),
        "the first reserved byte": (poked(48, b"\1"), "bad_index", "DS040"),
        "no rows": (poked(12, bytes(4)), "bad_index", "DS040"),
        "2**22 + 1 rows": (poked(12, words(2**22 + 1)), "bad_index", "DS040"),
        "2**32 - 1 rows": (poked(12, words(2**32 - 1)), "bad_index", "DS040"),
        "another body size": (poked(40, b"\0"), "bad_index", "DS040"),
        "a body size of 2**29": (poked(40, (2**29).to_bytes(8, "little")), "bad_index", "DS040"),
        "length 0": (set_row(0, "length", 0), "bad_index", "DS040"),
        "a length that is no multiple of 4": (set_row(0, "length", 23), "bad_index", "DS040"),
        "a length of 2**32 - 4": (set_row(0, "length", 2**32 - 4), "bad_index", "DS040"),
        "an array that is not there": (set_row(-1, "array", 3), "bad_index", "DS041"),
        "array 2**32 - 1": (set_row(-1, "array", 2**32 - 1), "bad_index", "DS041"),
        "a chunk that is not there": (set_row(-1, "chunk", 1000), "bad_index", "DS041"),
        "the first chunk that is not there": (set_row(-1, "chunk", 4), "bad_index", "DS041"),
        "count 0": (set_row(0, "count", 0), "bad_index", "DS041"),
        "a count above the chunk": (set_row(0, "count", 1 << 19), "bad_index", "DS041"),
        "a count one above the chunk": (set_row(0, "count", 9), "bad_index", "DS041"),
        "an encoding that is not there": (set_row(0, "encoding", 2), "bad_index", "DS041"),
        "raw with the length of runs": (set_row(0, "encoding", 1), "bad_index", "DS043"),
        "rows out of order": (rows_changed(lambda rows: rows[::-1]), "bad_index", "DS042"),
        "a chunk twice": (rows_changed(lambda rows: rows[[0, 0, *range(2, count)]]), "bad_index", "DS040"),
        "a byte behind the last patch": (good + b"\0", "bad_index", "DS040"),
        "a word less than its patches": (good[:-4], "bad_index", "DS040"),
    }


def _rows() -> Cases:
    """Rows of array 1, one chunk of eight BF16, and of array 2, four chunks of twelve in two slabs."""
    norm = Row(1, 0, patch_of(8, _BF16, Run(2, {0: 1, 7: 1})), 2)
    proj = [Row(2, chunk, patch_of(12, _BF16, Run(2, {3: 1})), 1) for chunk in range(4)]
    raw = Row(1, 0, bytes(range(16)), 8, encoding=1)
    long = Row(1, 0, patch_of(8, _BF16, Run(2, {0: 1})) + bytes(280), 1)
    broken = norm.but(patch=patch_of(8, _BF16, Run(2, {0: 1, 7: 1}, reserved=1)))
    padded = norm.but(patch=norm.patch[:-4] + words(0b101 | 1 << 31))
    both = len(norm.patch) + len(proj[0].patch)
    return {
        "a length of 0 in front of a longer one": (
            pack_of(norm.but(length=0), proj[0].but(length=both)),
            "bad_index",
            "DS041",
        ),
        "lengths that are no multiples of 4": (
            pack_of(norm.but(length=len(norm.patch) + 2), proj[0].but(length=len(proj[0].patch) - 2)),
            "bad_index",
            "DS041",
        ),
        "chunks out of order": (pack_of(norm, proj[1], proj[0]), "bad_index", "DS042"),
        "slabs out of order": (pack_of(proj[0], norm), "bad_index", "DS042"),
        "the second slab first": (pack_of(norm, proj[2], proj[1]), "bad_index", "DS042"),
        "the last chunk twice": (pack_of(norm, proj[3], proj[3]), "bad_index", "DS042"),
        "raw, a word too long": (pack_of(raw.but(patch=bytes(20))), "bad_index", "DS043"),
        "raw, a word too short": (pack_of(raw.but(patch=bytes(12))), "bad_index", "DS043"),
        "raw, with a count of changes": (pack_of(raw.but(count=7)), "bad_index", "DS043"),
        "a patch far longer than its chunk": (pack_of(long), "bad_index", "DS043"),
        "another hash": (pack_of(norm.but(check=bytes(16))), "bad_hash", "DS044"),
        "the hash of another patch": (
            pack_of(norm, proj[0].but(check=norm.index()[28:])),
            "bad_hash",
            "DS044",
        ),
        "a count below that of the patch": (pack_of(norm.but(count=1)), "bad_patch", "DS044"),
        "a count above that of the patch": (pack_of(norm.but(count=3)), "bad_patch", "DS044"),
        "a patch with reserved bits": (pack_of(broken), "bad_patch", "DS031"),
        "a patch with a bit in its padding": (pack_of(padded), "bad_patch", "DS030"),
        "a patch longer than its sections": (
            pack_of(norm.but(patch=norm.patch + bytes(4))),
            "bad_patch",
            "DS034",
        ),
        "a patch of a larger chunk": (
            pack_of(norm.but(patch=patch_of(12, _BF16, Run(2, {0: 1, 11: 1})))),
            "bad_patch",
            "DS030",
        ),
    }


def _also(name: str) -> Fields:
    """All requirements that a patch breaks where it breaks several."""
    return {"checks": ["DS030", "DS032"]} if name == "a patch of a larger chunk" else {}


def bad_packs(table: TensorTable, good: bytes) -> list[Fields]:
    """Packs of a table that a reader of all their patches refuses; ``good`` is one of every chunk."""
    text = table.to_bytes().decode("latin-1")
    return [
        {"name": name, "table": text, "pack": data.hex(), "code": code, "check": check, **_also(name)}
        for name, (data, code, check) in (_headers(good) | _rows()).items()
    ]
