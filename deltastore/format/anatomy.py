"""The parts of a patch by their bytes, of damaged ones too (SPEC section "Patch").

Nothing is checked here: whoever wants to trust a patch decodes it. This says what stands where.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from deltastore.format.patch import Encoding
from deltastore.kernels.reference.elias_fano import high_bits
from deltastore.kernels.reference.fields import section_bytes
from deltastore.kernels.reference.patch import WIDTHS

__all__ = ["HEADER_PARTS", "Part", "PatchAnatomy", "RunParts", "dissect"]

_COUNT: Final = struct.Struct("<I")
_RUN: Final = struct.Struct("<BBHI")

HEADER_PARTS: Final = ("run count", "run header")
"""Names of the parts that are no section of a run's body."""


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes ``[start, end)`` of a patch. ``run`` is the number of the run that they belong to, if any.

    ``name`` is ``run count``, ``run header``, ``low``, ``high``, ``residues``, ``raw`` or ``rest``. ``used``
    is how many bits of a section mean something, the others being padding.
    """

    name: str
    start: int
    end: int
    run: int | None = None
    used: int | None = None


@dataclass(frozen=True, slots=True)
class RunParts:
    """A run as its header has it: ``width``, ``low_bits``, ``reserved``, ``count``; and where its body is.

    ``low``, ``high`` and ``residues`` are None from the first part on whose place is not known: after a run
    whose number of elements of the chunk nobody said.
    """

    width: int
    low_bits: int
    reserved: int
    count: int
    low: Part | None = None
    high: Part | None = None
    residues: Part | None = None

    @property
    def nbytes(self) -> int | None:
        """Bytes of header and body; None where the body's place is not known."""
        parts = (self.low, self.high, self.residues)
        known = [part.end - part.start for part in parts if part is not None]
        return _RUN.size + sum(known) if len(known) == len(parts) else None


@dataclass(frozen=True, slots=True)
class PatchAnatomy:
    """All of a patch. ``parts`` cover its bytes from 0 on; ``needed`` bytes are what its headers ask for.

    ``needed`` is None where they do not say.
    """

    runs: tuple[RunParts, ...]
    parts: tuple[Part, ...]
    needed: int | None


def dissect(data: Any, encoding: int, elements: int | None, bits: int | None) -> PatchAnatomy:
    """What stands where in the patch ``data`` (bytes-like), of a chunk of ``elements`` of ``bits`` bits each.

    Both may be None where the table is not known: a single run then says itself how long its sections are, of
    several only the first two sections are placed. Never raises; parts end where ``data`` does.
    """
    octets = memoryview(data).cast("B")
    if encoding == Encoding.RAW:
        needed = None if elements is None or bits is None else section_bytes(elements * bits)
        end = len(octets) if needed is None else min(needed, len(octets))
        used = None if elements is None or bits is None else elements * bits
        return _anatomy((), [Part("raw", 0, end, None, used)], needed, len(octets))
    if encoding != Encoding.RUNS or len(octets) < _COUNT.size:
        return _anatomy((), [], None, len(octets))
    (count,) = _COUNT.unpack_from(octets)
    parts = [Part("run count", 0, _COUNT.size)]
    if not 1 <= count <= len(WIDTHS) or len(octets) < _COUNT.size + count * _RUN.size:
        return _anatomy((), parts, None, len(octets))
    heads = [_RUN.unpack_from(octets, _COUNT.size + number * _RUN.size) for number in range(count)]
    for number in range(count):
        start = _COUNT.size + number * _RUN.size
        parts.append(Part("run header", start, start + _RUN.size, number))
    runs, needed = _place(heads, _COUNT.size + count * _RUN.size, elements, len(octets))
    for run in runs:
        parts.extend(part for part in (run.low, run.high, run.residues) if part is not None)
    return _anatomy(runs, parts, needed, len(octets))


def _anatomy(runs: tuple[RunParts, ...], parts: list[Part], needed: int | None, length: int) -> PatchAnatomy:
    last = parts[-1].end if parts else 0
    rest = (Part("rest", last, length),) if last < length else ()
    return PatchAnatomy(runs, (*parts, *rest), needed)


def _place(
    heads: list[tuple[int, int, int, int]], at: int, elements: int | None, length: int
) -> tuple[tuple[RunParts, ...], int | None]:
    """The runs with the places of their bodies, and where the last one ends."""
    known: int | None = at
    runs = []
    for number, (width, low_bits, reserved, count) in enumerate(heads):
        sections: list[Part | None] = []
        lengths = _lengths(width, low_bits, count, elements, length - at if len(heads) == 1 else None)
        for name, (used, size) in zip(("low", "high", "residues"), lengths, strict=True):
            if known is None or size is None:
                known = None
                sections.append(None)
                continue
            end = known + size
            sections.append(Part(name, min(known, length), min(end, length), number, used))
            known = end
        runs.append(RunParts(width, low_bits, reserved, count, *sections))
    return tuple(runs), known


def _lengths(
    width: int, low_bits: int, count: int, elements: int | None, alone: int | None
) -> Iterator[tuple[int | None, int | None]]:
    """(bits used, bytes) of the three sections. ``alone``: the bytes of all three, where that is known."""
    low, residues = section_bytes(count * low_bits), section_bytes(count * width)
    yield count * low_bits, low
    if elements is not None:
        used = high_bits(count, elements, low_bits)
        yield used, section_bytes(used)
    else:
        rest = None if alone is None else alone - low - residues
        yield None, rest if rest is not None and rest >= 0 else None
    yield count * width, residues
