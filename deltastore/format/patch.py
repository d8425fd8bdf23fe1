"""Patches: the sparse change of one chunk between two versions (SPEC section "Patch").

A patch is a few runs, each (width w, sorted positions, residues). A residue is the low w bits of the new
value in ordered-integer space, so that decoding needs the current value only to within the width, and
applying a patch twice changes nothing more. A chunk that is too dense for runs is stored raw.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations
from typing import Any, Final

import numpy as np

from deltastore.errors import CorruptError
from deltastore.format.dtypes import Dtype
from deltastore.kernels.reference.elias_fano import (
    best_low_bits,
    decode_positions,
    encode_positions,
    positions_bytes,
)
from deltastore.kernels.reference.fields import pack_fields, section_bytes, unpack_fields
from deltastore.kernels.reference.ordered import ordered, signed_step, step_magnitude

__all__ = ["EncodedPatch", "Encoding", "Patch", "Run", "check_disjoint", "decode_patch", "encode_patch"]

Bits = np.ndarray[Any, Any]
Positions = np.ndarray[Any, np.dtype[np.uint32]]

WIDTHS: Final = (2, 4, 8, 16, 32, 64)
MAX_LOW_BITS: Final = 19
_COUNT = struct.Struct("<I")
_RUN = struct.Struct("<BBHI")


class Encoding(IntEnum):
    """How a patch is written; the number in its index row."""

    RUNS = 0
    RAW = 1


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
class Patch:
    """A decoded patch. ``positions`` are those of all runs one after another (raw: every element)."""

    dtype: Dtype
    positions: Positions
    runs: tuple[Run, ...]
    raw: Bits | None

    def new_bits(self, current: Bits, where: str) -> Bits:
        """What to write at ``positions``, given the bits that stand there now.

        Raises ``CorruptError("bad_patch")`` when an offset comes out as -2**(w-1), which is never encoded:
        then ``current`` is neither the base's nor the new value.
        """
        if self.raw is not None:
            return self.raw
        result = np.empty(len(self.positions), dtype=self.dtype.storage)
        at = 0
        for run in self.runs:
            part = slice(at, at + len(run.positions))
            result[part] = _resolve(run, current[part], self.dtype, where)
            at = part.stop
        return result

    def apply(self, flat: Bits, where: str) -> None:
        """Write the patch into the chunk's elements in row-major order, in place."""
        flat[self.positions] = self.new_bits(flat[self.positions], where)


def _resolve(run: Run, current: Bits, dtype: Dtype, where: str) -> Bits:
    if run.width == dtype.bits:
        return ordered(run.residues, floating=dtype.floating)
    at = ordered(current, floating=dtype.floating)
    one = dtype.storage.type(1)
    half = one << dtype.storage.type(run.width - 1)
    mask = (half << one) - one
    field = (run.residues - at) & mask
    if bool((field == half).any()):
        raise CorruptError(
            "bad_patch",
            f"{where}: a patch does not fit the current weights; they are not of its base version",
            where=where,
        )
    step = (field ^ half) - half
    return ordered(at + step, floating=dtype.floating)


def encode_patch(
    dtype: Dtype, elements: int, positions: Positions, old: Bits, new: Bits, chunk: Bits | None
) -> EncodedPatch:
    """The smallest patch that turns ``old`` into ``new`` at k >= 1 sorted ``positions`` of a chunk.

    ``old`` and ``new``: (k,) unsigned of W bits. ``chunk``: all ``elements`` new values in any shape, read
    only when the raw form is the smaller one; None where another writer owns some of them, which rules the
    raw form out. Time and extra memory O(elements).
    """
    new_ordered = ordered(new, floating=dtype.floating)
    step = signed_step(ordered(old, floating=dtype.floating), new_ordered)
    needed = _needed_width(step, dtype)
    widths, size = _choose_widths(needed, elements)
    if chunk is not None and size >= section_bytes(elements * dtype.bits):
        raw = np.ascontiguousarray(chunk, dtype=dtype.storage).tobytes()
        return EncodedPatch(Encoding.RAW, raw.ljust(section_bytes(len(raw) * 8), b"\0"), elements)
    heads, bodies, floor = [], [], 0
    for width in widths:
        chosen = (needed > floor) & (needed <= width)
        head, body = _encode_run(positions[chosen], new_ordered[chosen], width, elements)
        heads.append(head)
        bodies.append(body)
        floor = width
    return EncodedPatch(Encoding.RUNS, b"".join([_COUNT.pack(len(widths)), *heads, *bodies]), len(positions))


def _needed_width(step: Bits, dtype: Dtype) -> Bits:
    """The smallest width, as uint8, whose range -(2**(w-1) - 1) .. 2**(w-1) - 1 holds each step."""
    magnitude = step_magnitude(step)
    needed = np.full(len(step), dtype.bits, dtype=np.uint8)
    for width in reversed([width for width in WIDTHS if width < dtype.bits]):
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


def decode_patch(data: memoryview, encoding: int, dtype: Dtype, elements: int, where: str) -> Patch:
    """Read a patch of a chunk of ``elements`` elements; every rule of the format is checked first.

    Raises ``CorruptError("bad_patch")`` naming ``where``. Allocates O(elements) at most.
    """
    try:
        if encoding == Encoding.RAW:
            return _decode_raw(np.frombuffer(data, dtype=np.uint8), dtype, elements)
        if encoding == Encoding.RUNS:
            return _decode_runs(data, dtype, elements)
        raise ValueError(f"encoding {encoding} is not known")
    except (ValueError, struct.error) as error:
        raise CorruptError("bad_patch", f"{where}: {error}", where=where) from None


def _decode_raw(octets: Bits, dtype: Dtype, elements: int) -> Patch:
    values = unpack_fields(octets, elements, dtype.bits).astype(dtype.storage)
    return Patch(dtype, np.arange(elements, dtype=np.uint32), (), values)


def _decode_runs(data: memoryview, dtype: Dtype, elements: int) -> Patch:
    octets = np.frombuffer(data, dtype=np.uint8)
    (run_count,) = _COUNT.unpack_from(data)
    if not 1 <= run_count <= len(WIDTHS):
        raise ValueError(f"{run_count} runs")
    at = _COUNT.size + run_count * _RUN.size
    runs: list[Run] = []
    for number in range(run_count):
        width, low_bits, reserved, count = _RUN.unpack_from(data, _COUNT.size + number * _RUN.size)
        narrower = runs[-1].width if runs else 0
        if width not in WIDTHS or not narrower < width <= dtype.bits:
            raise ValueError(f"a run of width {width} after {narrower}")
        if reserved or low_bits > MAX_LOW_BITS or not 1 <= count <= elements:
            raise ValueError("a run header is out of range")
        middle = at + positions_bytes(count, elements, low_bits)
        end = middle + section_bytes(count * width)
        if end > len(octets):
            raise ValueError("a run is cut short")
        positions = decode_positions(octets[at:middle], count, elements, low_bits)
        residues = unpack_fields(octets[middle:end], count, width).astype(dtype.storage)
        runs.append(Run(width, positions, residues))
        at = end
    if at != len(octets):
        raise ValueError(f"{len(octets) - at} bytes after the last run")
    return Patch(dtype, _disjoint([run.positions for run in runs]), tuple(runs), None)


def _disjoint(parts: Sequence[Positions]) -> Positions:
    together = np.concatenate(parts)
    if len(parts) > 1:
        merged = np.sort(together, kind="stable")
        if bool((merged[1:] == merged[:-1]).any()):
            raise ValueError("a position stands in two runs")
    return together


def check_disjoint(parts: Sequence[Positions], where: str) -> None:
    """``CorruptError("bad_patch")`` when patches of one chunk, from several packs, share a position."""
    try:
        _disjoint(parts)
    except ValueError:
        raise CorruptError("bad_patch", f"{where}: two writers patch one element", where=where) from None
