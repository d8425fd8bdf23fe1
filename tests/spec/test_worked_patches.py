"""Appendix A.5 to A.8 of SPEC.md: patches as they stand in the text, encoded anew and decoded twice."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from deltastore.errors import DeltastoreError
from deltastore.format.dtypes import DTYPES, Dtype
from deltastore.format.patch import decode_patch, encode_patch
from deltastore.kernels.reference.elias_fano import best_low_bits, positions_bytes
from deltastore.kernels.reference.ordered import ordered
from spec import decoder

from .test_worked_examples import BF16, BLOCKS, octets, prose

Bits = np.ndarray[Any, Any]


def change_of(block: str) -> tuple[Bits, Bits, bytes]:
    """Base and new bits of a patch's block, and the patch."""
    given, dump = block.split("\n\n")
    found = re.match(r"base  (\d+) BF16 elements (.{4})(?:, but (.*))?\nnew   (.*)\nsteps (.*)", given)
    assert found is not None
    old = np.full(int(found[1]), int(found[2], 16), "<u2")
    new = old.copy()
    for bits, text in ((old, found[3] or ""), (new, f"{found[3] or ''} {found[4]}")):
        for at, value in re.findall(r"(\d+):([0-9A-F]{4})", text):
            bits[int(at)] = int(value, 16)
    changed = np.flatnonzero(old != new)
    steps = ordered(new, floating=True).view("<i2") - ordered(old, floating=True).view("<i2")
    assert [f"{step:+d}" for step in steps[changed].tolist()] == found[5].split(" ")
    return old, new, octets(dump)


def applied(patch: bytes, encoding: int, dtype: Dtype, old: Bits) -> Bits:
    """What a patch makes of a chunk, by the package and by the decoder, which agree."""
    ours = old.copy()
    decode_patch(memoryview(patch), encoding, dtype, old.size, "here").apply(ours, "here")
    runs = decoder.decode_patch(patch, dtype.name, old.size, encoding)
    theirs = decoder.apply_patch(runs, dtype.name, old.astype(np.uint64))
    assert theirs.tolist() == ours.tolist()
    return ours


@pytest.mark.spec("DS030", "DS035")
@pytest.mark.parametrize("name", ["patch-one-run", "patch-narrow", "patch-two-runs"])
def test_a_patch(name: str) -> None:
    old, new, patch = change_of(BLOCKS[name])
    at = np.flatnonzero(old != new).astype(np.uint32)
    assert encode_patch(BF16, old.size, at, old[at], new[at], None).data == patch
    assert applied(patch, 0, BF16, old).tobytes() == new.tobytes()
    assert applied(patch, 0, BF16, new).tobytes() == new.tobytes()


def test_steps_that_the_text_tells_of() -> None:
    assert "Steps of +1, +1 and +192" in prose("A.5 A patch with one run")
    assert "steps +1 +1 +192" in BLOCKS["patch-one-run"]


def test_one_run_in_place_of_two() -> None:
    old, new, patch = change_of(BLOCKS["patch-two-runs"])
    text = prose("A.7 A patch of two runs")
    at = np.flatnonzero(old != new)
    said = re.search(r"A single run of w = 16 would take (\d+) bytes", text)
    assert said is not None
    low = best_low_bits(len(at), old.size)
    alone = 4 + 8 + positions_bytes(len(at), old.size, low) + -(-len(at) * 16 // 32) * 4
    assert int(said[1]) == alone > len(patch)


@pytest.mark.spec("DS030")
def test_a_raw_patch() -> None:
    patch, dtype = octets(BLOCKS["patch-raw"]), DTYPES["U8"]
    found = re.search(r"new bits of (\d+) U8 elements", BLOCKS["patch-raw"])
    assert found is not None
    old = np.full(int(found[1]), 0xAB, np.uint8)
    new = applied(patch, 1, dtype, old)
    assert bytes(new) == octets(BLOCKS["patch-raw"].splitlines()[0])
    at = np.arange(old.size, dtype=np.uint32)
    encoded = encode_patch(dtype, old.size, at, old, new, new)
    assert (encoded.encoding, encoded.data) == (1, patch)


@pytest.mark.spec("DS036")
def test_decoding_over_bits_that_stand_there() -> None:
    rows = re.findall(r"^residue (\d) over (.{4}): .* = (.{4})$", BLOCKS["residues"], re.MULTILINE)
    assert len(rows) == len(BLOCKS["residues"].splitlines()) - 1 >= 4
    for residue, over, new in rows:
        old = np.array([int(over, 16)], "<u2")
        assert applied(one_element(int(residue)), 0, BF16, old).tolist() == [int(new, 16)]
    refused = re.search(r"^residue (\d) over (.{4}): .*refused \(DS036\)$", BLOCKS["residues"], re.MULTILINE)
    assert refused is not None
    with pytest.raises(DeltastoreError, match="does not fit"):
        applied(one_element(int(refused[1])), 0, BF16, np.array([int(refused[2], 16)], "<u2"))


def one_element(residue: int) -> bytes:
    """A patch of a chunk of one element: one run, w = 2, L = 0."""
    low = (1).to_bytes(4, "little")
    return low + bytes([2, 0, 0, 0]) + low + low + residue.to_bytes(4, "little")
