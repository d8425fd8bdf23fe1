"""Appendix A of SPEC.md: what it shows is what the product writes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from deltastore.format.digest import Digester, digest_text
from deltastore.format.dtypes import DTYPES
from deltastore.format.patch import encode_patch
from deltastore.format.seeds import tensor_seed
from deltastore.format.table import TensorSpec, TensorTable
from deltastore.kernels.reference.digest import mix
from deltastore.layout.cutting import plain_table

from .corpus import Bits, Change
from .tables import array, table

BF16 = DTYPES["BF16"]
APPENDIX = (
    (Path(__file__).resolve().parents[2] / "SPEC.md").read_text(encoding="utf-8").split("## A Worked")[-1]
)


def blocks() -> list[str]:
    """The indented or fenced blocks of the appendix, in order."""
    return re.findall(r"```\n(.*?)```", APPENDIX, flags=re.DOTALL)


def octets(block: str) -> bytes:
    """The bytes at the start of each line of a block, before its comment."""
    lines = [re.split(r"\s{2,}", line.strip())[0] for line in block.splitlines()]
    return bytes.fromhex("".join(line for line in lines if re.fullmatch(r"([0-9A-F]{2} ?)+", line)))


def test_the_table() -> None:
    specs = [TensorSpec(f"layers.{number}.w", (4, 4), BF16) for number in (0, 1, 3)]
    made = plain_table([*specs, TensorSpec("norm", (8,), BF16)])
    assert blocks()[0].strip().encode() == made.to_bytes()
    assert made.arrays[0].names[2] == "layers.3.w"
    assert TensorTable.from_bytes(blocks()[0].strip().encode(), "table") == made


def test_the_digests() -> None:
    def shown(name: str) -> int:
        found = re.search(rf"{re.escape(name)} = ([0-9a-f]{{16}})", APPENDIX)
        assert found is not None
        return int(found[1], 16)

    for x in (0, 1):
        assert int(mix(np.array([x], np.uint64))[0]) == shown(f"mix({x})")
    for j in (0, 1, 2047):
        assert int(mix(np.array([0x64656C746173746F + j], np.uint64))[0]) | 1 == shown(f"T[{j}]")
    assert tensor_seed("w") == shown('seed("w")')
    short = table([array(pattern="w", shape=[3], chunk=[1, 3])])
    bits = np.array([[0x3F80, 0xBF80, 0x0001]], "<u2")
    digest = digest_text(Digester(short).chunk(0, short.arrays[0].grid.box(0), bits))
    assert f"digest `{digest}`" in " ".join(APPENDIX.split())
    long = table([array(pattern="w", shape=[2049], chunk=[1, 2049])])
    at, seven = np.array([2048], np.uint32), np.array([7], "<u2")
    assert digest_text(Digester(long).at_positions(0, long.arrays[0].grid.box(0), at, seven)) in APPENDIX


ONE_RUN: list[Bits] = [np.full(16, 0x3F80, "<u2"), np.full(16, 0x3F80, "<u2")]
ONE_RUN[0][9] = 0x8000
ONE_RUN[1][[2, 9, 12]] = [0x3F81, 0x0000, 0x4040]
NARROW: list[Bits] = [np.full(1024, 0x1234, "<u2"), np.full(1024, 0x1234, "<u2")]
NARROW[0][[5, 700, 701]] = [0x3F80, 0xBF80, 0x0000]
NARROW[1][[5, 700, 701]] = [0x3F81, 0xBF7F, 0x8000]


@pytest.mark.spec("DS030", "DS035")
@pytest.mark.parametrize(("block", "sides"), [(1, ONE_RUN), (2, NARROW)], ids=["one run", "narrow steps"])
def test_the_patches(block: int, sides: list[Bits]) -> None:
    shown = octets(blocks()[block])
    change = Change(BF16, *sides)
    at = change.positions
    encoded = encode_patch(BF16, change.old.size, at, change.old[at], change.new[at], None)
    assert encoded.data == shown
    result = change.old.copy()
    change.decode(encoded).apply(result, "appendix")
    assert result.tobytes() == change.new.tobytes()
