"""One patch: the sparse change of one chunk, to bytes and back (SPEC section "Patch").

A patch is a few runs, each (width w, sorted positions, residues). A residue is the low w bits of the new
value in ordered-integer space, so that decoding needs the current value only to within the width, and
applying a patch twice changes nothing more. A chunk that is too dense for runs is stored raw.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, Protocol

import numpy as np

from deltastore.kernels.reference.elias_fano import (
    best_low_bits,
    decode_positions,
    encode_positions,
    positions_bytes,
)
from deltastore.kernels.reference.fields import pack_fields, section_bytes, unpack_fields
from deltastore.kernels.reference.ordered import ordered, signed_step, step_magnitude
from deltastore.kernels.rows import REASONS, Encoding

__all__ = [
    "WIDTHS",
    "DecodedPatch",
    "Element",
    "EncodedPatch",
    "Run",
    "check_disjoint",
    "decode_patch",
    "encode_patch",
]

Bits = np.ndarray[Any, Any]
Positions = np.ndarray[Any, np.dtype[np.uint32]]

WIDTHS: Final = (2, 4, 8, 16, 32, 64)
MAX_LOW_BITS: Final = 19
_COUNT = struct.Struct("<I")
_RUN = struct.Struct("<BBHI")


class Element(Protocol):
    """What must be known of an element type."""

    @property
    def bits(self) -> int:
        """Width W: 8, 16, 32 or 64."""
        ...

    @property
    def floating(self) -> bool:
        """Whether bits are sign and magnitude."""
        ...

    @property
    def storage(self) -> np.dtype[Any]:
        """Little-endian unsigned integers of W bits."""
        ...


@dataclass(frozen=True, slots=True)
class EncodedPatch:
    """The bytes of a patch and what its index row says of them: ``count`` elements are written by it."""

    encoding: Encoding
    data: bytes
    count: int


@dataclass(frozen=True, slots=True)
class Run:
    """Elements that share a residue width: ``positions`` uint32, ``residues`` unsigned of W bits."""

    width: int
    positions: Positions
    residues: Bits


@dataclass(frozen=True, slots=True)
class DecodedPatch:
    """A decoded patch. ``positions`` are those of all runs one after another (raw: every element)."""

    element: Element
    positions: Positions
    runs: tuple[Run, ...]
    raw: Bits | None

    def new_bits(self, current: Bits) -> Bits:
        """What to write at ``positions``, given the bits that stand there now.

        Raises ``ValueError`` when an offset comes out as -2**(w-1), which is never encoded: then ``current``
        is neither the base's nor the new value.
        """
        if self.raw is not None:
            return self.raw
        result = np.empty(len(self.positions), dtype=self.element.storage)
        at = 0
        for run in self.runs:
            part = slice(at, at + len(run.positions))
            result[part] = _resolve(run, current[part], self.element)
            at = part.stop
        return result


def _resolve(run: Run, current: Bits, element: Element) -> Bits:
    if run.width == element.bits:
        return ordered(run.residues, floating=element.floating)
    at = ordered(current, floating=element.floating)
    one = element.storage.type(1)
    half = one << element.storage.type(run.width - 1)
    mask = (half << one) - one
    field = (run.residues - at) & mask
    if bool((field == half).any()):
        raise ValueError(REASONS[14])
    step = (field ^ half) - half
    return ordered(at + step, floating=element.floating)


def encode_patch(
    element: Element, elements: int, positions: Positions, old: Bits, new: Bits, chunk: Bits | None
) -> EncodedPatch:
    """The smallest patch that turns ``old`` into ``new`` at k >= 1 sorted ``positions`` of a chunk.

    ``old`` and ``new``: (k,) unsigned of W bits. ``chunk``: all ``elements`` new values in any shape, read
    only when the raw form is the smaller one; None where another writer owns some of them, which rules the
    raw form out. Of several sets of widths that make it equally small, the one of fewest runs, then the one
    that is first in order, is taken. Time and extra memory O(elements).
    """
    new_ordered = ordered(new, floating=element.floating)
    step = signed_step(ordered(old, floating=element.floating), new_ordered)
    needed = _needed_width(step, element)
    widths, size = _choose_widths(needed, elements)
    if chunk is not None and size >= section_bytes(elements * element.bits):
        raw = np.ascontiguousarray(chunk, dtype=element.storage).tobytes()
        return EncodedPatch(Encoding.RAW, raw.ljust(section_bytes(len(raw) * 8), b"\0"), elements)
    heads, bodies, floor = [], [], 0
    for width in widths:
        chosen = (needed > floor) & (needed <= width)
        head, body = _encode_run(positions[chosen], new_ordered[chosen], width, elements)
        heads.append(head)
        bodies.append(body)
        floor = width
    return EncodedPatch(Encoding.RUNS, b"".join([_COUNT.pack(len(widths)), *heads, *bodies]), len(positions))


def _needed_width(step: Bits, element: Element) -> Bits:
    """The smallest width, as uint8, whose range -(2**(w-1) - 1) .. 2**(w-1) - 1 holds each step."""
    magnitude = step_magnitude(step)
    needed = np.full(len(step), element.bits, dtype=np.uint8)
    for width in reversed([width for width in WIDTHS if width < element.bits]):
        needed[magnitude < magnitude.dtype.type(1 << (width - 1))] = width
    return needed


def _choose_widths(needed: Bits, elements: int) -> tuple[tuple[int, ...], int]:
    """The set of widths that makes the patch smallest, ascending, with the patch's size in bytes."""
    present, tally = np.unique(needed, return_counts=True)
    widest = int(present[-1])
    allowed = [width for width in WIDTHS if width < widest]
    options = [
        (*narrow, widest) for size in range(len(allowed) + 1) for narrow in combinations(allowed, size)
    ]
    sized = [(_runs_bytes(option, present, tally, elements), len(option), option) for option in options]
    best = min(entry for entry in sized if entry[0] > 0)
    return best[2], best[0]


def _runs_bytes(option: tuple[int, ...], present: Bits, tally: Bits, elements: int) -> int:
    """Bytes of a patch with these widths, or 0 when one of its runs would be empty."""
    total, floor = _COUNT.size, 0
    for width in option:
        count = int(tally[(present > floor) & (present <= width)].sum())
        if count == 0:
            return 0
        low = best_low_bits(count, elements)
        total += _RUN.size + positions_bytes(count, elements, low) + section_bytes(count * width)
        floor = width
    return total


def _encode_run(positions: Positions, new: Bits, width: int, elements: int) -> tuple[bytes, bytes]:
    low = best_low_bits(len(positions), elements)
    head = _RUN.pack(width, low, 0, len(positions))
    return head, encode_positions(positions, elements, low) + pack_fields(new, width)


def decode_patch(data: Any, encoding: int, element: Element, elements: int) -> DecodedPatch:
    """Read a patch of a chunk of ``elements`` elements; every rule of the format is checked first.

    ``data`` is bytes-like. Raises ``ValueError`` with one of ``REASONS``. Allocates O(elements) at most.
    """
    octets = np.frombuffer(data, dtype=np.uint8)
    if encoding == Encoding.RAW:
        return _decode_raw(octets, element, elements)
    if encoding == Encoding.RUNS:
        return _decode_runs(octets, element, elements)
    raise ValueError(REASONS[2])


def _decode_raw(octets: Bits, element: Element, elements: int) -> DecodedPatch:
    if len(octets) != section_bytes(elements * element.bits):
        raise ValueError(REASONS[12])
    values = unpack_fields(octets, elements, element.bits).astype(element.storage)
    return DecodedPatch(element, np.arange(elements, dtype=np.uint32), (), values)


def _decode_runs(octets: Bits, element: Element, elements: int) -> DecodedPatch:
    if len(octets) < _COUNT.size:
        raise ValueError(REASONS[3])
    (run_count,) = _COUNT.unpack_from(octets.data)
    if not 1 <= run_count <= len(WIDTHS):
        raise ValueError(REASONS[4])
    at = _COUNT.size + run_count * _RUN.size
    if len(octets) < at:
        raise ValueError(REASONS[3])
    runs: list[Run] = []
    for number in range(run_count):
        width, low_bits, reserved, count = _RUN.unpack_from(octets.data, _COUNT.size + number * _RUN.size)
        narrower = runs[-1].width if runs else 0
        if width not in WIDTHS or not narrower < width <= element.bits:
            raise ValueError(REASONS[5])
        if reserved or low_bits > MAX_LOW_BITS or not 1 <= count <= elements:
            raise ValueError(REASONS[6])
        middle = at + positions_bytes(count, elements, low_bits)
        end = middle + section_bytes(count * width)
        if end > len(octets):
            raise ValueError(REASONS[3])
        positions = decode_positions(octets[at:middle], count, elements, low_bits)
        residues = unpack_fields(octets[middle:end], count, width).astype(element.storage)
        runs.append(Run(width, positions, residues))
        at = end
    if at != len(octets):
        raise ValueError(REASONS[7])
    return DecodedPatch(element, _disjoint([run.positions for run in runs]), tuple(runs), None)


def check_disjoint(parts: Sequence[Positions]) -> None:
    """``ValueError`` when two of these lists of positions, each strictly ascending, share one."""
    _disjoint(parts)


def _disjoint(parts: Sequence[Positions]) -> Positions:
    together = np.concatenate(parts)
    if len(parts) > 1:
        merged = np.sort(together, kind="stable")
        if bool((merged[1:] == merged[:-1]).any()):
            raise ValueError(REASONS[11])
    return together
