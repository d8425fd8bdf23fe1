"""Patches of every element type, width and encoding, and one for every broken rule: SPEC section 9."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from deltastore.format.dtypes import DTYPES, Dtype
from deltastore.format.patch import encode_patch
from deltastore.kernels.reference.ordered import ordered

Fields = dict[str, Any]
Bits = np.ndarray[Any, Any]

SIZE = 100


def _moved(dtype: Dtype, old: Bits, rng: np.random.Generator, reach: int) -> Bits:
    """Every element moved by up to ``reach`` steps in ordered-integer space."""
    step = rng.integers(1, reach + 1, len(old), dtype=np.int64) * rng.choice([-1, 1], len(old))
    at = ordered(old, floating=dtype.floating) + step.astype(f"<i{dtype.itemsize}").view(dtype.storage)
    return ordered(at, floating=dtype.floating)


def _case(name: str, dtype: Dtype, base: Bits, result: Bits, *, may_be_raw: bool = True) -> Fields:
    positions = np.flatnonzero(base != result).astype(np.uint32)
    patch = encode_patch(
        dtype, len(base), positions, base[positions], result[positions], result if may_be_raw else None
    )
    return {
        "name": name,
        "dtype": dtype.name,
        "elements": len(base),
        "encoding": int(patch.encoding),
        "patch": patch.data.hex(),
        "base": base.tobytes().hex(),
        "result": result.tobytes().hex(),
        "count": patch.count,
    }


def _good() -> list[Fields]:
    rng = np.random.default_rng(9)
    rows = []
    for dtype in DTYPES.values():
        base = rng.integers(0, 256, SIZE * dtype.itemsize, dtype=np.uint8).view(dtype.storage)
        for changed, reach in ((1, 1), (5, 1), (20, 60), (SIZE, 3)):
            result = base.copy()
            where = rng.choice(SIZE, changed, replace=False)
            result[where] = _moved(dtype, base[where], rng, reach)
            rows.append(_case(f"{dtype.name}, {changed} of {SIZE}, up to {reach} steps", dtype, base, result))
        result = rng.integers(0, 256, SIZE * dtype.itemsize, dtype=np.uint8).view(dtype.storage)
        rows.append(_case(f"{dtype.name}, all replaced", dtype, base, result))
        rows.append(_case(f"{dtype.name}, one element", dtype, base[:1], base[:1] ^ dtype.storage.type(1)))
    return rows + _special_values()


def _special_values() -> list[Fields]:
    bf16 = DTYPES["BF16"]
    signs = np.array([0x0000, 0x8000, 0x0000, 0x8000] * 8, dtype="<u2")
    nans = np.array([0x7FC0, 0x7F81, 0xFFC1, 0xFF81, 0x7F80, 0xFF80, 0x0001, 0x8001] * 4, dtype="<u2")
    wide = np.full(2000, 0x3F80, dtype="<u2")
    mixed = wide.copy()
    mixed[::7] += 1
    mixed[3::33] -= 100
    mixed[5::50] = 0xFFC1
    return [
        _case("-0.0 and +0.0 change places", bf16, signs, signs ^ np.uint16(0x8000), may_be_raw=False),
        _case("zeros become NaN payloads and infinities", bf16, signs, nans, may_be_raw=False),
        _case("NaN payloads, raw", bf16, signs, nans),
        _case("three runs", bf16, wide, mixed),
    ]


def _runs(*runs: tuple[int, int, int, int, bytes]) -> bytes:
    """A patch from (width, low bits, reserved, count, body) of each run."""
    heads = b"".join(struct.pack("<BBHI", *run[:4]) for run in runs)
    return struct.pack("<I", len(runs)) + heads + b"".join(run[4] for run in runs)


def _bad() -> list[Fields]:
    words = struct.Struct("<I").pack
    one = words(0b1) + words(1)  # position 0, L = 0, one residue
    two = words(0b1001) + words(0b0101)  # positions 0 and 2
    good = _runs((2, 0, 0, 1, one))
    cases: dict[str, tuple[bytes, int, str]] = {
        "empty": (b"", 0, "bad_patch"),
        "no runs": (words(0), 0, "bad_patch"),
        "seven runs": (words(7) + good[4:] * 7, 0, "bad_patch"),
        "cut in a header": (good[:9], 0, "bad_patch"),
        "cut in a body": (good[:-4], 0, "bad_patch"),
        "bytes after the last run": (good + words(0), 0, "bad_patch"),
        "width 3": (_runs((3, 0, 0, 1, one)), 0, "bad_patch"),
        "width 0": (_runs((0, 0, 0, 1, words(1))), 0, "bad_patch"),
        "width above the element's": (_runs((32, 0, 0, 1, one)), 0, "bad_patch"),
        "widths that do not ascend": (
            _runs((4, 0, 0, 1, one), (2, 0, 0, 1, words(2) + words(1))),
            0,
            "bad_patch",
        ),
        "one width twice": (_runs((2, 0, 0, 1, one), (2, 0, 0, 1, words(2) + words(1))), 0, "bad_patch"),
        "20 low bits": (_runs((2, 20, 0, 1, words(0) + one)), 0, "bad_patch"),
        "reserved bits": (_runs((2, 0, 1, 1, one)), 0, "bad_patch"),
        "count 0": (_runs((2, 0, 0, 0, words(0))), 0, "bad_patch"),
        "count above the elements": (_runs((2, 0, 0, 17, words(0) * 4)), 0, "bad_patch"),
        "count 2**32 - 1": (_runs((2, 0, 0, 2**32 - 1, one)), 0, "bad_patch"),
        "fewer ones than the count": (_runs((2, 0, 0, 2, words(0b1) + words(5))), 0, "bad_patch"),
        "more ones than the count": (_runs((2, 0, 0, 1, words(0b101) + words(1))), 0, "bad_patch"),
        "a one after the high section": (_runs((2, 0, 0, 1, words(1 << 16) + words(1))), 0, "bad_patch"),
        "a position twice": (_runs((2, 1, 0, 2, words(0b00) + words(0b11) + words(5))), 0, "bad_patch"),
        "positions out of order": (_runs((2, 1, 0, 2, words(0b01) + words(0b11) + words(5))), 0, "bad_patch"),
        "a position at the end of the chunk": (
            _runs((2, 4, 0, 1, words(0b1111) + words(0b1) + words(1))),
            0,
            "bad_patch",
        ),
        "a bit after the residues": (_runs((2, 0, 0, 1, words(1) + words(1 << 2))), 0, "bad_patch"),
        "a bit after the low bits": (_runs((2, 1, 0, 1, words(0b10) + words(1) + words(1))), 0, "bad_patch"),
        "a position in two runs": (_runs((2, 0, 0, 2, two), (4, 0, 0, 1, one)), 0, "bad_patch"),
        "an offset of -2**(w-1)": (_runs((2, 0, 0, 1, words(1) + words(2))), 0, "bad_patch"),
        "raw, too short": (bytes(28), 1, "bad_patch"),
        "raw, too long": (bytes(36), 1, "bad_patch"),
        "encoding 2": (good, 2, "bad_patch"),
    }
    rows = []
    for name, (patch, encoding, code) in cases.items():
        elements = 15 if "end of the chunk" in name else 16
        rows.append(
            {
                "name": name,
                "dtype": "BF16",
                "elements": elements,
                "encoding": encoding,
                "patch": patch.hex(),
                "base": bytes(2 * elements).hex(),
                "code": code,
            }
        )
    padded = {"name": "raw, a bit in the padding", "dtype": "U8", "elements": 3, "encoding": 1}
    return [*rows, {**padded, "patch": "00000001", "base": "000000", "code": "bad_patch"}]


def vectors() -> object:
    """Patch and base bits -> bits of the version; or an error code."""
    return {"ok": _good(), "err": _bad()}
