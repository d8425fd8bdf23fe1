"""Every rule of a pack, broken alone and at random."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltastore.errors import DeltastoreError, UnsupportedError
from deltastore.format.dtypes import DTYPES
from deltastore.format.limits import PACK_BYTES, ROWS_PER_PACK
from deltastore.format.pack import HEADER_BYTES, ROW, PackIndex, index_bytes
from deltastore.format.patch import Encoding

from .corpus import Change, seeds
from .packing import changes_of, pack_of, problem_of, rows_of, with_patch, with_row, with_rows
from .tables import array, table

MADE = table(
    [
        array(
            pattern="e.*",
            members=[[[0, 4]]],
            shape=[6, 8],
            chunk=[1, 4, 8],
            slab={"by": "member", "of": 0, "count": 4},
        ),
        array(dtype="U8", shape=[5], chunk=[1, 3]),
        array(pattern="proj", shape=[8, 6], chunk=[1, 2, 6], slab={"by": "axis", "of": 1, "count": 0}),
    ],
    2,
)
CHANGED = changes_of(MADE, np.random.default_rng(2), 1.0)
GOOD = bytes(pack_of(MADE, CHANGED, may_be_raw=False).data)
COUNT = len(CHANGED)
KEYS = list(CHANGED)


def refused(data: bytes, code: str = "bad_index") -> str:
    problem = problem_of(data, MADE)
    assert problem is not None
    assert problem.code == code
    assert "packs/7.pack" in str(problem)
    return str(problem)


def code_of(data: bytes) -> str | None:
    """The code with which header and index are refused."""
    try:
        PackIndex.parse(data, MADE, "packs/7.pack")
    except DeltastoreError as error:
        return error.code
    return None


def poked(at: int, value: bytes) -> bytes:
    return GOOD[:at] + value + GOOD[at + len(value) :]


def test_the_pack_that_the_rules_start_from() -> None:
    assert problem_of(GOOD, MADE) is None
    assert COUNT == 4 * 2 + 2 + 4
    assert KEYS[:2] == [(1, 0), (1, 1)]


@pytest.mark.spec("DS040")
def test_the_header() -> None:
    for size in (*range(HEADER_BYTES), HEADER_BYTES + ROW.itemsize * COUNT - 1):
        refused(GOOD[:size])
    for at in range(8):
        refused(poked(at, bytes([GOOD[at] ^ 1])))
    for at in (10, 11, *range(48, 64)):
        for bit in range(8):
            refused(poked(at, bytes([1 << bit])))
    refused(poked(8, b"\0\0"))
    for version in (2, 3, 2**16 - 1):
        with pytest.raises(UnsupportedError) as caught:
            PackIndex.parse(poked(8, struct.pack("<H", version)), MADE, "packs/7.pack")
        assert caught.value.code == "newer_format"
    for count in (0, COUNT + 1, ROWS_PER_PACK, ROWS_PER_PACK + 1, 2**32 - 1):
        refused(poked(12, struct.pack("<I", count)))
    for more in (-4, -1, 1, 4, 2**32, 2**63):
        body = len(GOOD) - index_bytes(COUNT) + more
        refused(poked(40, struct.pack("<Q", body)))
    assert problem_of(poked(16, struct.pack("<Q", 2**64 - 1)), MADE) is None


@pytest.mark.spec("DS040", "DS100")
def test_a_pack_that_claims_to_be_larger_than_a_pack_can_be() -> None:
    data = with_row(GOOD, 0, length=PACK_BYTES)
    assert "more than" in refused(data)
    rows = rows_of(GOOD)
    rows["length"] = 2**32 - 4
    refused(with_rows(GOOD, rows))


@pytest.mark.spec("DS041")
@pytest.mark.parametrize("number", [0, COUNT // 2, COUNT - 1])
def test_numbers_of_a_row(number: int) -> None:
    at, chunk = KEYS[number]
    elements = MADE.arrays[at].grid.box(chunk).elements
    length = int(rows_of(GOOD)["length"][number])
    for value in (len(MADE.arrays), 2**31, 2**32 - 1):
        refused(with_row(GOOD, number, array=value))
    for value in (len(MADE.arrays[at].grid), 2**31, 2**32 - 1):
        refused(with_row(GOOD, number, chunk=value))
    for value in (0, elements + 1, 2**20, 2**32 - 1):
        refused(with_row(GOOD, number, count=value))
    for value in (2, 3, 256, 2**32 - 1):
        refused(with_row(GOOD, number, encoding=value))
    for value in (0, length - 1, length + 1, length + 2):
        refused(with_row(GOOD, number, length=value))


@pytest.mark.spec("DS042")
def test_rows_ascend_by_slab_array_and_chunk() -> None:
    rows = rows_of(GOOD)
    for at in range(COUNT - 1):
        swapped = [*range(at), at + 1, at, *range(at + 2, COUNT)]
        assert "not in order" in refused(with_rows(GOOD, rows[swapped]))
        twice = [*range(at + 1), at, *range(at + 2, COUNT)]
        refused(with_rows(GOOD, rows[twice]))
    refused(with_rows(GOOD, rows[::-1]))
    by_array = np.lexsort((rows["chunk"], rows["array"]))
    assert by_array.tolist() != list(range(COUNT))
    refused(with_rows(GOOD, rows[by_array]))


@pytest.mark.spec("DS043")
def test_a_raw_row_has_the_length_and_count_of_its_chunk() -> None:
    number = KEYS.index((1, 1))
    assert MADE.arrays[1].grid.box(1).elements == 2
    data = with_patch(GOOD, number, b"\1\2\0\0", encoding=Encoding.RAW, count=2)
    assert problem_of(data, MADE) is None
    refused(with_patch(GOOD, number, b"\1\2\0\0\0\0\0\0", encoding=Encoding.RAW, count=2))
    refused(with_patch(GOOD, number, b"\1\2\0\0", encoding=Encoding.RAW, count=1))
    refused(with_patch(GOOD, number, b"\1\2\3\0", encoding=Encoding.RAW, count=2), "bad_patch")


@pytest.mark.spec("DS043", "DS100")
@pytest.mark.parametrize("key", [(1, 0), (1, 1), (0, 0), (2, 3)])
def test_a_patch_is_not_far_longer_than_its_chunk(key: tuple[int, int]) -> None:
    spec = MADE.arrays[key[0]]
    most = 2 * spec.grid.box(key[1]).elements * spec.element.itemsize + 256
    number = KEYS.index(key)
    longest = most // 4 * 4
    refused(with_patch(GOOD, number, bytes(longest)), "bad_patch")
    assert "far longer" in refused(with_patch(GOOD, number, bytes(longest + 4)))


@pytest.mark.spec("DS044")
@settings(max_examples=200)
@given(seed=seeds, data=st.data())
def test_a_flipped_bit_in_any_patch_is_found_by_its_hash(seed: int, data: st.DataObject) -> None:
    start = index_bytes(COUNT)
    at = data.draw(st.integers(start, len(GOOD) - 1))
    broken = poked(at, bytes([GOOD[at] ^ 1 << data.draw(st.integers(0, 7))]))
    assert "does not match its hash" in refused(broken, "bad_hash")


@pytest.mark.spec("DS044")
@pytest.mark.parametrize("number", range(COUNT))
def test_a_patch_that_writes_another_count_than_its_row(number: int) -> None:
    rows = rows_of(GOOD)
    at, chunk = KEYS[number]
    elements = MADE.arrays[at].grid.box(chunk).elements
    count = int(rows["count"][number])
    for other in {1, count - 1, count + 1, elements} - {count}:
        if 1 <= other <= elements:
            assert "another count" in refused(with_row(GOOD, number, count=other), "bad_patch")


@pytest.mark.spec("DS040", "DS041", "DS042", "DS043", "DS044")
@settings(max_examples=800)
@given(places=st.lists(st.integers(0, 8 * index_bytes(COUNT) - 1), min_size=1, max_size=3))
def test_flipped_bits_in_header_and_index(places: list[int]) -> None:
    """Refused by a rule, or every row is in its range and order: no other error."""
    octets = bytearray(GOOD)
    for place in places:
        octets[place // 8] ^= 1 << place % 8
    if code_of(bytes(octets)) is not None:
        assert code_of(bytes(octets)) in ("bad_index", "newer_format")
        return
    index = PackIndex.parse(bytes(octets), MADE, "packs/7.pack")
    keys = []
    for _, row, start, end in index.patches():
        at, chunk = int(row["array"]), int(row["chunk"])
        assert 0 <= start < end <= len(octets)
        keys.append((int(MADE.arrays[at].slabs(np.array([chunk]), MADE.slabs)[0]), at, chunk))
    assert keys == sorted(set(keys))


@settings(max_examples=300)
@given(front=st.binary(max_size=200), seed=seeds)
def test_any_bytes(front: bytes, seed: int) -> None:
    header = GOOD[:12] + struct.pack("<I", len(front) // 44) + GOOD[16:40]
    rows = np.frombuffer(front, ROW, len(front) // 44) if len(front) >= 44 else rows_of(GOOD)[:0]
    body = int(rows["length"].astype(np.int64).sum()) if len(rows) else 0
    for data in (front, header + struct.pack("<Q", body) + bytes(16) + front):
        assert code_of(data) in (None, "bad_index", "newer_format")


@pytest.mark.spec("DS100")
def test_a_short_object_that_claims_many_rows_allocates_nothing() -> None:
    data = poked(12, struct.pack("<I", ROWS_PER_PACK))
    tracemalloc.start()
    try:
        refused(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 17


def test_a_patch_cannot_move_to_another_chunk_unseen() -> None:
    """Array and chunk are not in the patch's hash, but they are in the digest difference of its row."""
    change = Change(DTYPES["BF16"], np.zeros(32, "<u2"), np.arange(32, dtype="<u2"))
    one = bytes(pack_of(MADE, {(0, 0): change}).data)
    two = bytes(pack_of(MADE, {(0, 2): change}).data)
    assert rows_of(one)["check"][0] == rows_of(two)["check"][0]
    assert rows_of(one)["difference"][0] != rows_of(two)["difference"][0]
