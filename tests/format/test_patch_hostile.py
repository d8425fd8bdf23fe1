"""Broken patches: refused as the specification says, or safe to apply; no other error, not much memory."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deltastore.errors import CorruptError
from deltastore.format.dtypes import DTYPES, Dtype
from deltastore.format.patch import Encoding, decode_patch

from . import naive
from .corpus import Bits, Change, changes, dtypes, random_bits, seeds

KIBI = 1024


WAYS = ("flip a bit", "flip bits", "flip front bits", "poke", "word", "cut", "extend", "drop", "insert")
WORDS = (0, 1, 2, 0xFF, 0xFFFF, 2**31, 2**32 - 1)


def damage(data: bytes, way: str, rng: np.random.Generator) -> bytes:
    """``data`` with bits flipped, words replaced, dropped or inserted, cut or extended."""
    octets = np.frombuffer(data, np.uint8).copy()
    at = int(rng.integers(0, len(data)))
    word = struct.pack("<I", rng.choice(WORDS))
    front = min(32, len(data))
    if way.startswith("flip"):
        reach = front if way == "flip front bits" else len(data)
        for place in rng.integers(0, reach, 1 if way == "flip a bit" else int(rng.integers(1, 4))):
            octets[place] ^= 1 << int(rng.integers(0, 8))
        return octets.tobytes()
    if way == "poke":
        octets[rng.integers(0, front)] = rng.integers(0, 256)
        return octets.tobytes()
    aligned = at & ~3
    changed = {
        "word": data[:aligned] + word + data[aligned + 4 :],
        "cut": data[:at],
        "extend": data + rng.bytes(int(rng.integers(1, 9))),
        "drop": data[:aligned] + data[aligned + 4 :],
        "insert": data[:aligned] + word + data[aligned:],
    }
    return changed[way]


def check_same_verdict(data: bytes, encoding: int, dtype: Dtype, base: Bits) -> None:
    """Product and specification accept the same bytes, and then write the same bits."""
    try:
        found = naive.decode(data, encoding, dtype, base.size)
    except naive.RefusedError:
        with pytest.raises(CorruptError) as caught:
            decode_patch(memoryview(data), encoding, dtype, base.size, "here")
        assert caught.value.code == "bad_patch"
        return
    patch = decode_patch(memoryview(data), encoding, dtype, base.size, "here")
    assert sorted(patch.positions.tolist()) == sorted(found)
    result = base.copy()
    try:
        expected = naive.apply(found, dtype, base.tolist())
    except naive.RefusedError:
        with pytest.raises(CorruptError) as caught:
            patch.apply(result, "here")
        assert caught.value.code == "bad_patch"
        assert result.tobytes() == base.tobytes()
        return
    patch.apply(result, "here")
    assert result.tolist() == expected


@pytest.mark.spec("DS030", "DS031", "DS032", "DS033", "DS034", "DS036")
@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=250)
@given(
    change=changes(most=200),
    may_be_raw=st.booleans(),
    seed=seeds,
    other_encoding=st.sampled_from([None] * 6 + [0, 1, 2, 2**32 - 1]),
)
def test_a_damaged_patch(
    way: str, change: Change, may_be_raw: bool, seed: int, other_encoding: int | None
) -> None:
    encoded = change.encode(may_be_raw=may_be_raw)
    broken = damage(encoded.data, way, np.random.default_rng(seed))
    encoding = int(encoded.encoding) if other_encoding is None else other_encoding
    check_same_verdict(broken, encoding, change.dtype, change.old)


@settings(max_examples=300)
@given(change=changes(most=300), may_be_raw=st.booleans(), dtype=dtypes, elements=st.integers(1, 400))
def test_a_patch_of_a_chunk_of_another_size_or_type(
    change: Change, may_be_raw: bool, dtype: Dtype, elements: int
) -> None:
    base = random_bits(dtype, elements, np.random.default_rng(0))
    encoded = change.encode(may_be_raw=may_be_raw)
    check_same_verdict(encoded.data, encoded.encoding, dtype, base)


@settings(max_examples=500)
@given(dtype=dtypes, data=st.binary(max_size=80), encoding=st.integers(0, 2), elements=st.integers(1, 70))
@example(dtype=DTYPES["BF16"], data=b"", encoding=0, elements=1)
@example(dtype=DTYPES["BF16"], data=b"", encoding=1, elements=1)
def test_any_bytes(dtype: Dtype, data: bytes, encoding: int, elements: int) -> None:
    base = random_bits(dtype, elements, np.random.default_rng(0))
    check_same_verdict(data, encoding, dtype, base)
    check_same_verdict(struct.pack("<I", 1 + len(data) % 3) + data, 0, dtype, base)


@settings(max_examples=300)
@given(change=changes(most=500), seed=seeds)
def test_weights_of_no_known_version(change: Change, seed: int) -> None:
    """Over foreign bits a patch is refused before it writes, or writes what the specification says."""
    encoded = change.encode(may_be_raw=False)
    foreign = random_bits(change.dtype, change.old.size, np.random.default_rng(seed))
    check_same_verdict(encoded.data, 0, change.dtype, foreign)


@pytest.mark.spec("DS100")
@pytest.mark.parametrize("head", [2**32 - 1, 2**20, 2**20 - 1])
@pytest.mark.parametrize("low_bits", [0, 19, 20, 255])
@pytest.mark.parametrize("width", [2, 16, 64])
def test_a_short_patch_that_claims_a_lot_allocates_nothing(head: int, low_bits: int, width: int) -> None:
    data = struct.pack("<IBBHI", 1, width, low_bits, 0, head) + bytes(64)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptError):
            decode_patch(memoryview(data), Encoding.RUNS, DTYPES["F64"], 2**20, "here")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * KIBI


@pytest.mark.spec("DS100")
@pytest.mark.parametrize("low_bits", [0, 3, 19])
@pytest.mark.parametrize("ones", [0, 2**14])
def test_no_patch_takes_more_memory_than_its_chunk_explains(low_bits: int, ones: int) -> None:
    """Every section as long as the rules allow: at most a few hundred bytes an element."""
    elements = 2**14
    low = bytes(naive.section_size(elements * low_bits))
    high = b"\xff" * (ones // 8) + bytes(
        naive.section_size(elements + ((elements - 1) >> low_bits)) - ones // 8
    )
    runs = [struct.pack("<BBHI", width, low_bits, 0, elements) for width in (2, 4, 8, 16, 32, 64)]
    body = b"".join(
        low + high + bytes(naive.section_size(elements * width)) for width in (2, 4, 8, 16, 32, 64)
    )
    data = struct.pack("<I", 6) + b"".join(runs) + body
    tracemalloc.start()
    try:
        with pytest.raises(CorruptError):
            decode_patch(memoryview(data), Encoding.RUNS, DTYPES["F64"], elements, "here")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 300 * elements
