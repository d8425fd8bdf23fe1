"""Bits as numbers, against ml_dtypes and NumPy."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from deltastore.format.dtypes import DTYPES
from deltastore.format.numbers import bits_text, number_text

SMALL = {
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}
LARGE = {"BF16": ml_dtypes.bfloat16, "F16": np.float16}


@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_every_pattern_of_8_and_16_bits(name: str) -> None:
    native: Any = {**SMALL, **LARGE}[name]
    width = DTYPES[name].bits
    step = 1 if width == 8 else 13
    patterns = np.arange(0, 1 << width, step, dtype=f"<u{width // 8}")
    with np.errstate(invalid="ignore"):
        wanted = patterns.view(native).astype(np.float64)
    for bits, number in zip(patterns.tolist(), wanted.tolist(), strict=True):
        text = number_text(DTYPES[name], bits)
        found = float(text)
        if math.isnan(number):
            assert math.isnan(found), bits
            continue
        assert math.copysign(1, found) == math.copysign(1, number)
        assert native(found).view(patterns.dtype) == bits, (bits, text)


@pytest.mark.parametrize(
    ("name", "bits", "text"),
    [
        ("BOOL", 0, "false"),
        ("BOOL", 1, "true"),
        ("BOOL", 7, "7"),
        ("U8", 255, "255"),
        ("I8", 255, "-1"),
        ("I16", 0x8000, "-32768"),
        ("U64", (1 << 64) - 1, "18446744073709551615"),
        ("I64", 1 << 63, "-9223372036854775808"),
        ("F32", 0x80000000, "-0.0"),
        ("F32", 0x3DCCCCCD, "0.1"),
        ("F64", 1, "5e-324"),
        ("F64", 0x7FF0000000000000, "inf"),
        ("C64", 0xBF8000003F800000, "1.0-1.0j"),
        ("C64", 0x3F80000080000000, "-0.0+1.0j"),
    ],
)
def test_other_types(name: str, bits: int, text: str) -> None:
    assert number_text(DTYPES[name], bits) == text


def test_bits_have_all_their_digits() -> None:
    assert bits_text(DTYPES["BF16"], 0x3F) == "003F"
    assert bits_text(DTYPES["U8"], 10) == "0A"
    assert bits_text(DTYPES["I64"], 1) == "0000000000000001"
