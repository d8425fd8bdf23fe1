"""Bit sections against one big integer, which is what a section is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deltastore.kernels.reference.fields import pack_fields, section_bytes, unpack_fields

WIDTHS = (*range(21), 31, 32, 33, 40, 63, 64)


def naive_section(values: list[int], width: int) -> bytes:
    number = sum((value % (1 << width)) << (place * width) for place, value in enumerate(values))
    return number.to_bytes(-(-len(values) * width // 32) * 4, "little")


def octets(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(data, dtype=np.uint8)


@pytest.mark.parametrize("bits", [0, 1, 31, 32, 33, 64, 65, 2**40])
def test_a_section_is_whole_words(bits: int) -> None:
    assert section_bytes(bits) == (bits + 31) // 32 * 4


@settings(max_examples=300)
@given(width=st.sampled_from(WIDTHS), data=st.data())
def test_packing_is_the_specification_and_unpacking_its_inverse(width: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, 2**64 - 1), max_size=70))
    section = pack_fields(np.array(values, dtype=np.uint64), width)
    assert section == naive_section(values, width)
    back = unpack_fields(octets(section), len(values), width)
    assert back.tolist() == [value % 2**width for value in values]
    assert back.dtype == (np.uint64 if width > 32 else np.uint32)


@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("width", [1, 2, 4, 7, 8])
def test_values_of_any_width(dtype: str, width: int) -> None:
    values = np.arange(256, dtype=np.uint64).astype(dtype)
    assert pack_fields(values, width) == naive_section(values.tolist(), width)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", [1, 3, 32, 33])
def test_every_unused_bit_must_be_clear(width: int, count: int) -> None:
    size = section_bytes(count * width)
    assert unpack_fields(octets(bytes(size)), count, width).tolist() == [0] * count
    for bit in range(count * width, 8 * size):
        section = (1 << bit).to_bytes(size, "little")
        with pytest.raises(ValueError, match="unused bit"):
            unpack_fields(octets(section), count, width)


@settings(max_examples=300)
@given(width=st.sampled_from(WIDTHS), count=st.integers(0, 70), section=st.binary(max_size=64))
@example(width=0, count=0, section=b"")
@example(width=0, count=0, section=bytes(4))
@example(width=2, count=0, section=bytes(4))
def test_any_bytes_are_read_as_the_specification_says_or_refused(
    width: int, count: int, section: bytes
) -> None:
    number = int.from_bytes(section, "little")
    if len(section) != section_bytes(count * width) or number >> (count * width):
        with pytest.raises(ValueError, match=r"cut short|unused bit"):
            unpack_fields(octets(section), count, width)
    else:
        values = unpack_fields(octets(section), count, width)
        assert values.tolist() == [number >> (i * width) & (2**width - 1) for i in range(count)]


@pytest.mark.parametrize("width", [2, 5, 8, 16, 32, 64])
@pytest.mark.parametrize("shift", range(1, 8))
def test_sections_at_any_address(width: int, shift: int) -> None:
    values = np.arange(1, 40, dtype=np.uint64) * np.uint64(0x0123456789ABCDEF)
    section = pack_fields(values, width)
    moved = np.frombuffer(bytes(shift) + section, dtype=np.uint8, offset=shift)
    assert unpack_fields(moved, 39, width).tolist() == unpack_fields(octets(section), 39, width).tolist()


def test_values_of_any_stride() -> None:
    values = np.arange(100, dtype=np.uint32)
    for width in (3, 8, 16):
        assert pack_fields(values[::-3], width) == naive_section(values[::-3].tolist(), width)
