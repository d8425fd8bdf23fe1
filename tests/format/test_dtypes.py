"""Element types are those of the specification."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from deltastore.errors import InputError
from deltastore.format.dtypes import DTYPES, dtype_named

SPEC = (Path(__file__).resolve().parents[2] / "SPEC.md").read_text(encoding="utf-8")


def test_the_table_of_element_types_is_complete() -> None:
    section = SPEC.split("## 6 Element types")[1].split("###")[0]
    listed: dict[str, tuple[int, bool]] = {}
    for width, floats, others in re.findall(r"^\| (\d+) \| (.*?) \| (.*?) \|$", section, flags=re.MULTILINE):
        for cell, floating in ((floats, True), (others, False)):
            listed |= {name: (int(width), floating) for name in re.findall(r"`([A-Z0-9_]+)`", cell)}
    assert listed == {name: (dtype.bits, dtype.floating) for name, dtype in DTYPES.items()}


@pytest.mark.parametrize("name", DTYPES)
def test_storage_is_little_endian_unsigned_of_the_width(name: str) -> None:
    dtype = dtype_named(name)
    assert dtype.name == name
    assert dtype.storage == np.dtype(f"<u{dtype.bits // 8}")
    assert dtype.storage.itemsize == dtype.itemsize


@pytest.mark.parametrize("name", ["", "bf16", "F4", "F6_E2M3", "C128", "BF16\n"])
def test_other_types_are_not_there(name: str) -> None:
    with pytest.raises(InputError, match="BF16, BOOL") as caught:
        dtype_named(name)
    assert caught.value.code == "wrong_dtype"
