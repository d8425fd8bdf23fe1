"""SPEC.md section 9 in plain Python integers: slow, and without a line of the product's."""

from __future__ import annotations

from typing import Protocol

WIDTHS = (2, 4, 8, 16, 32, 64)


class Element(Protocol):
    """What the naive code needs to know of an element type."""

    @property
    def bits(self) -> int: ...

    @property
    def floating(self) -> bool: ...


class RefusedError(Exception):
    """The bytes break a rule."""


def to_ordered(bits: int, element: Element) -> int:
    """SPEC 6.1, as an unsigned pattern of W bits."""
    if element.floating and bits >> (element.bits - 1):
        return bits ^ ((1 << (element.bits - 1)) - 1)
    return bits


from_ordered = to_ordered


def section_size(bits: int) -> int:
    """Bytes of a bit section."""
    return (bits + 31) // 32 * 4


def section_of(values: list[int], width: int) -> bytes:
    """Fields of ``width`` bits, lowest bit first, as one integer."""
    number = 0
    for place, value in enumerate(values):
        number |= (value & (2**width - 1)) << (place * width)
    return number.to_bytes(section_size(len(values) * width), "little")


def fields_of(section: bytes, count: int, width: int) -> list[int]:
    """The inverse; refuses a section of another size, or with an unused bit set."""
    number = int.from_bytes(section, "little")
    if len(section) != section_size(count * width) or number >> (count * width):
        raise RefusedError
    return [number >> (place * width) & (2**width - 1) for place in range(count)]


def positions_of(low: list[int], high: bytes, universe: int, low_bits: int) -> list[int]:
    """Elias-Fano positions from the low bits and the high section."""
    length = len(low) + ((universe - 1) >> low_bits)
    ones = [place for place, bit in enumerate(fields_of(high, length, 1)) if bit]
    if len(ones) != len(low):
        raise RefusedError
    positions = [(one - i) << low_bits | low[i] for i, one in enumerate(ones)]
    if positions != sorted(set(positions)) or positions[-1] >= universe:
        raise RefusedError
    return positions


def decode(data: bytes, encoding: int, element: Element, elements: int) -> dict[int, tuple[int, int]]:
    """Position -> (width, residue). A raw patch is residues of the full width."""
    if encoding == 1:
        values = fields_of(data, elements, element.bits)
        return {place: (element.bits, to_ordered(value, element)) for place, value in enumerate(values)}
    if encoding != 0:
        raise RefusedError
    runs = int.from_bytes(data[:4], "little")
    at, floor = 4 + 8 * runs, 0
    if len(data) < 4 or not 1 <= runs <= 6 or len(data) < at:
        raise RefusedError
    found: dict[int, tuple[int, int]] = {}
    for head in range(4, 4 + 8 * runs, 8):
        width, low_bits = data[head], data[head + 1]
        reserved = int.from_bytes(data[head + 2 : head + 4], "little")
        count = int.from_bytes(data[head + 4 : head + 8], "little")
        if width not in WIDTHS or not floor < width <= element.bits or low_bits > 19 or reserved:
            raise RefusedError
        if not 1 <= count <= elements:
            raise RefusedError
        floor = width
        sizes = (count * low_bits, count + ((elements - 1) >> low_bits), count * width)
        parts = []
        for size in map(section_size, sizes):
            parts.append(data[at : at + size])
            at += size
        low = fields_of(parts[0], count, low_bits)
        positions = positions_of(low, parts[1], elements, low_bits)
        residues = fields_of(parts[2], count, width)
        if found.keys() & set(positions):
            raise RefusedError
        found |= {place: (width, residue) for place, residue in zip(positions, residues, strict=True)}
    if at != len(data):
        raise RefusedError
    return found


def apply(found: dict[int, tuple[int, int]], element: Element, current: list[int]) -> list[int]:
    """The new bits of the whole chunk; refuses an offset of -2**(w-1)."""
    result = list(current)
    for place, (width, residue) in found.items():
        new = residue
        if width < element.bits:
            at = to_ordered(current[place], element)
            offset = (residue - at) % 2**width
            if offset == 2 ** (width - 1):
                raise RefusedError
            if offset > 2 ** (width - 1):
                offset -= 2**width
            new = (at + offset) % 2**element.bits
        result[place] = from_ordered(new, element)
    return result
