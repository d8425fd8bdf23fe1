"""Each rule of a patch by itself, on patches built by hand (SPEC section "Patch")."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import pytest

from deltastore.errors import CorruptError
from deltastore.format.dtypes import DTYPES
from deltastore.format.patch import Encoding, Patch, check_disjoint, decode_patch, encode_patch

from .naive import section_of, section_size

BF16, U8, F64 = DTYPES["BF16"], DTYPES["U8"], DTYPES["F64"]


class Run(NamedTuple):
    """One run as its writer might have it; anything left None is what the rules ask for."""

    width: int
    positions: list[int]
    residues: list[int]
    low_bits: int = 0
    reserved: int = 0
    claims: int | None = None

    def bytes_in(self, elements: int) -> tuple[bytes, bytes]:
        count = len(self.positions) if self.claims is None else self.claims
        head = struct.pack("<BBHI", self.width, self.low_bits, self.reserved, count)
        bits = [0] * (len(self.positions) + ((elements - 1) >> self.low_bits))
        for i, place in enumerate(self.positions):
            bits[(place >> self.low_bits) + i] = 1
        low = section_of(self.positions, self.low_bits)
        return head, low + section_of(bits, 1) + section_of(self.residues, self.width)


def patch_of(*runs: Run, elements: int = 16) -> bytes:
    parts = [run.bytes_in(elements) for run in runs]
    return (
        struct.pack("<I", len(runs))
        + b"".join(head for head, _ in parts)
        + b"".join(body for _, body in parts)
    )


def decode(data: bytes, elements: int = 16, dtype: object = BF16, encoding: int = 0) -> Patch:
    return decode_patch(memoryview(data), encoding, dtype, elements, "pack 7")  # type: ignore[arg-type]


def refused(data: bytes, elements: int = 16, encoding: int = 0) -> str:
    with pytest.raises(CorruptError) as caught:
        decode(data, elements, encoding=encoding)
    assert caught.value.code == "bad_patch"
    assert "pack 7" in str(caught.value)
    return str(caught.value)


def test_a_patch_by_hand_reads_as_written() -> None:
    patch = decode(patch_of(Run(2, [0, 5], [1, 3]), Run(16, [3, 15], [7, 9], low_bits=2)))
    assert patch.positions.tolist() == [0, 5, 3, 15]
    assert [run.width for run in patch.runs] == [2, 16]
    assert [run.residues.tolist() for run in patch.runs] == [[1, 3], [7, 9]]
    assert patch.runs[0].residues.dtype == BF16.storage


@pytest.mark.parametrize("low_bits", range(20))
def test_every_number_of_low_bits_is_read(low_bits: int) -> None:
    places = [0, 1, 31, 32, 1000, 65_535, 2**20 - 1]
    patch = decode(patch_of(Run(2, places, [1] * 7, low_bits=low_bits), elements=2**20), 2**20)
    assert patch.positions.tolist() == places


@pytest.mark.spec("DS030")
@pytest.mark.parametrize("bit", range(32))
def test_every_bit_behind_a_section_must_be_clear(bit: int) -> None:
    """Low: 6 of 32 bits used; high: 18 of 32; residues: 6 of 32."""
    good = patch_of(Run(2, [1, 5, 9], [1, 1, 1], low_bits=2))
    used = {0: 6, 1: 3 + 3, 2: 6}
    for section, bits in used.items():
        at = 12 + 4 * section
        word = int.from_bytes(good[at : at + 4], "little") | 1 << bit
        broken = good[:at] + word.to_bytes(4, "little") + good[at + 4 :]
        if bit >= bits:
            refused(broken)


@pytest.mark.spec("DS030")
@pytest.mark.parametrize("elements", [1, 2, 3, 5])
def test_every_byte_behind_a_raw_chunk_must_be_clear(elements: int) -> None:
    for place in range(elements, section_size(8 * elements)):
        data = bytearray(section_size(8 * elements))
        data[place] = 1
        with pytest.raises(CorruptError, match="unused bit"):
            decode(bytes(data), elements, U8, Encoding.RAW)


@pytest.mark.spec("DS031")
@pytest.mark.parametrize("width", [0, 1, 3, 5, 7, 12, 15, 17, 31, 32, 64, 128, 255])
def test_widths_that_are_not_there(width: int) -> None:
    refused(patch_of(Run(width, [0], [0])))


@pytest.mark.spec("DS031")
@pytest.mark.parametrize("widths", [(2, 2), (4, 2), (16, 2), (2, 8, 4), (2, 4, 16, 8), (2, 4, 8, 8)])
def test_widths_that_do_not_ascend(widths: tuple[int, ...]) -> None:
    refused(patch_of(*(Run(width, [place], [1]) for place, width in enumerate(widths))))


@pytest.mark.spec("DS031")
def test_header_fields_at_and_beyond_their_range() -> None:
    good = Run(2, [3], [1], low_bits=19)
    assert decode(patch_of(good)).positions.tolist() == [3]
    refused(patch_of(good._replace(low_bits=20)))
    refused(patch_of(good._replace(reserved=1)))
    refused(patch_of(good._replace(reserved=0x8000)))
    assert len(decode(patch_of(Run(2, list(range(16)), [1] * 16))).positions) == 16
    refused(patch_of(Run(2, list(range(16)), [1] * 16), elements=16), elements=15)
    refused(patch_of(good._replace(claims=0)))
    refused(patch_of(good._replace(claims=2**32 - 1)))


@pytest.mark.spec("DS031")
@pytest.mark.parametrize("runs", [0, 7, 8, 2**16, 2**31, 2**32 - 1])
def test_numbers_of_runs_that_are_not_there(runs: int) -> None:
    body = patch_of(*(Run(2, [place], [1]) for place in range(6)))[4:]
    refused(struct.pack("<I", runs) + body + bytes(400))


@pytest.mark.spec("DS032")
def test_the_high_section_has_as_many_ones_as_positions() -> None:
    good = patch_of(Run(2, [1, 5], [1, 1]))
    high = int.from_bytes(good[12:16], "little")
    for bit in range(32):
        broken = good[:12] + (high ^ 1 << bit).to_bytes(4, "little") + good[16:]
        refused(broken)


@pytest.mark.spec("DS032")
@pytest.mark.parametrize("low", [[1, 1], [1, 0], [3, 2], [0, 0]])
def test_positions_ascend_strictly(low: list[int]) -> None:
    """Two positions with one high part: only their low bits tell them apart."""
    head = struct.pack("<IBBHI", 1, 2, 2, 0, 2)
    high = [0] * (2 + (15 >> 2))
    high[0] = high[1] = 1
    refused(head + section_of(low, 2) + section_of(high, 1) + section_of([1, 1], 2))


@pytest.mark.spec("DS032")
@pytest.mark.parametrize("elements", [1, 2, 3, 5, 9, 15, 17, 31, 100, 255])
def test_the_first_position_behind_the_chunk(elements: int) -> None:
    """With low bits the coding can express positions up to the next power of two."""
    for low_bits in range(1, 9):
        end = ((elements - 1) >> low_bits) + 1 << low_bits
        for place in range(elements, end):
            run = Run(2, [place], [1], low_bits=low_bits)
            refused(patch_of(run, elements=elements), elements)
        last = Run(2, [elements - 1], [1], low_bits=low_bits)
        assert decode(patch_of(last, elements=elements), elements).positions.tolist() == [elements - 1]


@pytest.mark.spec("DS033")
def test_a_position_in_two_runs() -> None:
    assert "two runs" in refused(patch_of(Run(2, [1, 5], [1, 1]), Run(4, [0, 5], [1, 1])))
    assert "two runs" in refused(patch_of(Run(2, [1], [1]), Run(4, [2], [1]), Run(8, [1], [1])))


@pytest.mark.spec("DS034")
def test_bytes_too_few_and_too_many() -> None:
    good = patch_of(Run(2, [1, 5], [1, 1]), Run(8, [2], [200]))
    decode(good)
    for cut in range(len(good)):
        refused(good[:cut])
    for more in range(1, 9):
        refused(good + bytes(more))
    raw = bytes(32)
    decode(raw, encoding=Encoding.RAW)
    for size in (0, 1, 16, 28, 31, 33, 36):
        refused(bytes(size), encoding=Encoding.RAW)


@pytest.mark.spec("DS036")
@pytest.mark.parametrize("width", [2, 4, 8])
def test_the_offset_that_is_never_written(width: int) -> None:
    """One element too far from both versions stops the whole patch before its first write."""
    patch = decode(patch_of(Run(width, [1, 2], [0, 0])))
    base = np.zeros(16, BF16.storage)
    base[1], base[2] = 1, 2 ** (width - 1)
    before = base.copy()
    with pytest.raises(CorruptError, match="not of its base version") as caught:
        patch.apply(base, "pack 7")
    assert caught.value.code == "bad_patch"
    assert np.array_equal(base, before)


@pytest.mark.spec("DS036")
def test_an_offset_of_the_full_width_is_an_absolute_value() -> None:
    patch = decode(patch_of(Run(16, [1], [0x8000])))
    for current in (0x0000, 0x8000, 0x7FFF, 0xFFFF):
        base = np.full(16, current, BF16.storage)
        patch.apply(base, "here")
        assert int(base[1]) == 0xFFFF


def test_encoding_numbers() -> None:
    good = patch_of(Run(2, [1], [1]))
    for encoding in (2, 3, 255, 2**32 - 1):
        assert "encoding" in refused(good, encoding=encoding)


@pytest.mark.spec("DS045")
def test_two_packs_may_share_a_chunk_but_no_element() -> None:
    def at(*places: int) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        return np.array(places, dtype=np.uint32)

    check_disjoint([at(1, 5), at(0, 6), at(2)], "chunk 3")
    check_disjoint([at(1)], "chunk 3")
    for parts in ([at(1, 5), at(5)], [at(1), at(2), at(1)], [at(0), at(0)]):
        with pytest.raises(CorruptError, match="chunk 3") as caught:
            check_disjoint(parts, "chunk 3")
        assert caught.value.code == "bad_patch"


@pytest.mark.spec("DS035")
@pytest.mark.parametrize(
    ("step", "width"), [(1, 2), (2, 4), (7, 4), (8, 8), (127, 8), (128, 16), (2**15 - 1, 16), (2**15, 32)]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_width_of_a_step(step: int, width: int, sign: int) -> None:
    old = np.full(1, 2**40, "<u8")
    new = (old.astype("<i8") + sign * step).astype("<u8")
    encoded = encode_patch(DTYPES["I64"], 1, np.zeros(1, np.uint32), old, new, None)
    assert encoded.data[4] == width


@pytest.mark.spec("DS035")
@pytest.mark.parametrize("step", [2**31 - 1, 2**31, 2**63 - 1, 2**63])
def test_the_width_of_a_long_step(step: int) -> None:
    old = np.zeros(1, "<u8")
    new = np.array([step], "<u8")
    encoded = encode_patch(DTYPES["I64"], 1, np.zeros(1, np.uint32), old, new, None)
    assert encoded.data[4] == (32 if step < 2**31 else 64)
    decode_patch(memoryview(encoded.data), 0, DTYPES["I64"], 1, "here").apply(old, "here")
    assert int(old[0]) == step
