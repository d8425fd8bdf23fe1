"""Patches that break one rule each: SPEC section 9."""

from __future__ import annotations

import struct
from typing import Any

from deltastore.format.dtypes import DTYPES
from spec.vectors.make.by_hand import words

Fields = dict[str, Any]

ALSO: dict[str, tuple[str, ...]] = {
    "2**32 - 1 runs": ("DS031", "DS034"),
    "count above the elements": ("DS031", "DS032", "DS034"),
    "count 2**32 - 1": ("DS031", "DS034"),
    "seven runs": ("DS031", "DS033"),
    "one width twice": ("DS031", "DS032", "DS033"),
    "raw, empty": ("DS034", "DS043"),
    "raw, too short": ("DS034", "DS043"),
    "raw, too long": ("DS034", "DS043"),
}
"""All requirements that a patch breaks where it breaks several."""

_ONE = words(0b1) + words(1)  # position 0, L = 0, one residue
_TWO = words(0b1001) + words(0b0101)  # positions 0 and 2


def _runs(*runs: tuple[int, int, int, int, bytes]) -> bytes:
    """A patch from (width, low bits, reserved, count, body) of each run."""
    heads = b"".join(struct.pack("<BBHI", *run[:4]) for run in runs)
    return words(len(runs)) + heads + b"".join(run[4] for run in runs)


_GOOD = _runs((2, 0, 0, 1, _ONE))


def _headers() -> dict[str, tuple[bytes, int, str]]:
    return {
        "no runs": (words(0), 0, "DS031"),
        "seven runs": (words(7) + _GOOD[4:] * 7, 0, "DS031"),
        "2**32 - 1 runs": (words(2**32 - 1) + _GOOD[4:], 0, "DS031"),
        "width 3": (_runs((3, 0, 0, 1, _ONE)), 0, "DS031"),
        "width 0": (_runs((0, 0, 0, 1, words(1))), 0, "DS031"),
        "width 1": (_runs((1, 0, 0, 1, _ONE)), 0, "DS031"),
        "width 128": (_runs((128, 0, 0, 1, words(1) + words(1) * 4)), 0, "DS031"),
        "width above the element's": (_runs((32, 0, 0, 1, _ONE)), 0, "DS031"),
        "widths that do not ascend": (
            _runs((4, 0, 0, 1, _ONE), (2, 0, 0, 1, words(2) + words(1))),
            0,
            "DS031",
        ),
        "one width twice": (_runs((2, 0, 0, 1, _ONE), (2, 0, 0, 1, words(2) + words(1))), 0, "DS031"),
        "20 low bits": (_runs((2, 20, 0, 1, words(0) + _ONE)), 0, "DS031"),
        "255 low bits": (_runs((2, 255, 0, 1, words(0) * 8 + _ONE)), 0, "DS031"),
        "reserved bits": (_runs((2, 0, 1, 1, _ONE)), 0, "DS031"),
        "the upper reserved byte": (_runs((2, 0, 256, 1, _ONE)), 0, "DS031"),
        "count 0": (_runs((2, 0, 0, 0, words(0))), 0, "DS031"),
        "count above the elements": (_runs((2, 0, 0, 17, words(0) * 4)), 0, "DS031"),
        "count 2**32 - 1": (_runs((2, 0, 0, 2**32 - 1, _ONE)), 0, "DS031"),
        "encoding 2": (_GOOD, 2, "DS041"),
        "encoding 2**32 - 1": (_GOOD, 2**32 - 1, "DS041"),
    }


def _lengths() -> dict[str, tuple[bytes, int, str]]:
    second = _runs((2, 0, 0, 1, _ONE), (4, 0, 0, 1, words(2) + words(1)))
    low = _runs((2, 1, 0, 1, words(0) + _ONE))
    return {
        "empty": (b"", 0, "DS034"),
        "only the number of runs": (words(1), 0, "DS034"),
        "cut in a header": (_GOOD[:9], 0, "DS034"),
        "cut between headers": (second[:12], 0, "DS034"),
        "cut in a body": (_GOOD[:-4], 0, "DS034"),
        "cut behind the headers": (_GOOD[:12], 0, "DS034"),
        "cut behind the low bits": (low[:16], 0, "DS034"),
        "cut in the second run": (second[:-4], 0, "DS034"),
        "bytes after the last run": (_GOOD + words(0), 0, "DS034"),
        "raw, empty": (b"", 1, "DS043"),
        "raw, too short": (bytes(28), 1, "DS043"),
        "raw, too long": (bytes(36), 1, "DS043"),
    }


def _bits() -> dict[str, tuple[bytes, int, str]]:
    return {
        "a bit after the low bits": (_runs((2, 1, 0, 1, words(0b10) + words(1) + words(1))), 0, "DS030"),
        "a one after the high section": (_runs((2, 0, 0, 1, words(1 << 16) + words(1))), 0, "DS030"),
        "a bit after the residues": (_runs((2, 0, 0, 1, words(1) + words(1 << 2))), 0, "DS030"),
        "the highest bit after the residues": (
            _runs((2, 0, 0, 1, words(1) + words(1 | 1 << 31))),
            0,
            "DS030",
        ),
        "a bit after the residues of the second run": (
            _runs((2, 0, 0, 1, _ONE), (4, 0, 0, 1, words(2) + words(1 << 4))),
            0,
            "DS030",
        ),
    }


def _positions() -> dict[str, tuple[bytes, int, str]]:
    return {
        "fewer ones than the count": (_runs((2, 0, 0, 2, words(0b1) + words(5))), 0, "DS032"),
        "no ones": (_runs((2, 0, 0, 1, words(0) + words(1))), 0, "DS032"),
        "more ones than the count": (_runs((2, 0, 0, 1, words(0b101) + words(1))), 0, "DS032"),
        "a position twice": (_runs((2, 1, 0, 2, words(0b00) + words(0b11) + words(5))), 0, "DS032"),
        "positions out of order": (_runs((2, 1, 0, 2, words(0b01) + words(0b11) + words(5))), 0, "DS032"),
        "a position at the end of the chunk": (
            _runs((2, 4, 0, 1, words(0b1111) + words(0b1) + words(1))),
            0,
            "DS032",
        ),
        "a position far beyond the chunk": (
            _runs((2, 19, 0, 1, words(2**19 - 1) + words(0b1) + words(1))),
            0,
            "DS032",
        ),
        "a position in two runs": (_runs((2, 0, 0, 2, _TWO), (4, 0, 0, 1, _ONE)), 0, "DS033"),
    }


def _row(name: str, dtype: str, elements: int, patch: bytes, encoding: int, check: str) -> Fields:
    return {
        "name": name,
        "dtype": dtype,
        "elements": elements,
        "encoding": encoding,
        "patch": patch.hex(),
        "base": bytes(elements * DTYPES[dtype].itemsize).hex(),
        "code": "bad_patch",
        "check": check,
        **({"checks": list(ALSO[name])} if name in ALSO else {}),
    }


def bad_patches() -> list[Fields]:
    """Every rule of section 9 broken, most of them in chunks of 16 BF16 elements, all +0.0."""
    cases = _headers() | _lengths() | _bits() | _positions()
    rows = [
        _row(name, "BF16", 15 if "end of the chunk" in name else 16, patch, encoding, check)
        for name, (patch, encoding, check) in cases.items()
    ]
    rows.append(
        _row("an offset of -2**(w-1)", "BF16", 16, _runs((2, 0, 0, 1, words(1) + words(2))), 0, "DS036")
    )
    for width in (4, 8, 16, 32):
        half = (1 << (width - 1)).to_bytes(4, "little")
        patch = _runs((width, 0, 0, 1, words(1) + half))
        rows.append(_row(f"an offset of -2**{width - 1}", "F64", 16, patch, 0, "DS036"))
    for dtype, elements in (("F8_E5M2", 1), ("BF16", 1), ("I16", 3)):
        size = elements * DTYPES[dtype].itemsize
        padded = bytes(size) + bytes(-size % 4 - 1) + b"\1"
        rows.append(
            _row(f"raw {dtype}, a bit in the padding of {elements}", dtype, elements, padded, 1, "DS030")
        )
    rows.append(_row("raw, a bit in the padding", "U8", 3, b"\0\0\0\1", 1, "DS030"))
    return rows
