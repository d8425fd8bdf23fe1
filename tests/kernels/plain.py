"""Sections 7 and 8 of SPEC.md in plain Python integers: slow, and without a line of the product's."""

from __future__ import annotations

from collections.abc import Sequence

MODULUS = 2**64


def mix(x: int) -> int:
    z = (x + 0x9E3779B97F4A7C15) % MODULUS
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % MODULUS
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % MODULUS
    return z ^ (z >> 31)


def weight(index: int, seed: int) -> int:
    """The digest weight of element ``index`` of a tensor."""
    return (mix(0x64656C746173746F + index % 2048) | 1) * (mix(index // 2048) | 1) * seed % MODULUS


def chunk_box(extent: Sequence[int], chunk: Sequence[int], number: int) -> tuple[list[int], list[int]]:
    """First element and size of chunk ``number`` along each axis."""
    start, size = [], []
    for axis, step in reversed(list(zip(extent, chunk, strict=True))):
        number, here = divmod(number, (axis + step - 1) // step)
        start.append(here * step)
        size.append(min(step, axis - here * step))
    return start[::-1], size[::-1]


def element_of(
    extent: Sequence[int], start: Sequence[int], size: Sequence[int], position: int
) -> tuple[int, tuple[int, ...], int]:
    """(member, place in the tensor, flat index in the tensor) of a position in a chunk's box."""
    inside = []
    for axis in reversed(size):
        position, here = divmod(position, axis)
        inside.append(here)
    member, *place = (low + here for low, here in zip(start, reversed(inside), strict=True))
    flat = 0
    for here, axis in zip(place, extent[1:], strict=True):
        flat = flat * axis + here
    return member, tuple(place), flat
