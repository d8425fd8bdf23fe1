"""Which elements changed, as whoever knows it says: masks, indexes, or bits packed eight to a byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import InputError
from deltastore.layout.live_parts import HeldPart, LiveParts
from deltastore.layout.memory import is_torch

__all__ = ["Marks", "MarksByName", "PackedBits", "chunked", "marked"]

Marks = Any
"""Of one tensor or part: a bool array of its shape, a one-dimensional array of row-major indexes into it, or
``PackedBits``. NumPy arrays or torch tensors."""

MarksByName = Mapping[str, Marks | Sequence[Marks]]
"""Tensor name -> marks; of a tensor given as several parts, a sequence with as many marks as parts."""

Indexes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PackedBits:
    """One bit for each of n elements, row-major: uint8 ``(ceil(n / 8),)``, the lowest bit of a byte first."""

    octets: Any


def marked(live: LiveParts, marks: MarksByName) -> dict[int, Indexes]:
    """For each marked part of ``live`` its row-major indexes: strictly ascending, int64.

    Raises ``InputError``: ``unknown_tensor``, and ``bad_argument``, ``wrong_shape`` or ``wrong_dtype`` for
    marks that do not fit their tensor.
    """
    numbers: dict[str, list[int]] = {}
    for number, part in enumerate(live.parts):
        numbers.setdefault(part.name, []).append(number)
    found: dict[int, Indexes] = {}
    for name, given in marks.items():
        mine = numbers.get(name)
        if mine is None:
            message = f"marks for tensor {name!r}, which this writer does not hold: leave them out"
            raise InputError("unknown_tensor", message, where=name)
        each = list(given) if isinstance(given, list | tuple) else [given]
        if len(each) != len(mine):
            message = f"tensor {name!r} is held in {len(mine)} parts that are not empty, not {len(each)}"
            raise InputError("bad_argument", f"{message}: give marks for each", where=name)
        for number, one in zip(mine, each, strict=True):
            found[number] = _indexes(live.parts[number], one)
    return found


def _indexes(part: HeldPart, marks: Marks) -> Indexes:
    elements = int(np.prod(part.box.size, dtype=np.int64))
    if isinstance(marks, PackedBits):
        octets = _array(part, marks.octets)
        length = -(-elements // 8)
        if octets.dtype != np.uint8 or octets.shape != (length,):
            raise _wrong(part, f"{octets.shape} of {octets.dtype}, not ({length},) of uint8")
        bits = np.unpackbits(octets, bitorder="little")
        if bits[elements:].any():
            raise _wrong(part, "bits beyond its last element")
        return np.flatnonzero(bits)
    array = _array(part, marks)
    if array.dtype == np.bool_:
        if array.shape != part.box.size:
            raise _wrong(part, f"a mask of shape {list(array.shape)} where it has {list(part.box.size)}")
        return np.flatnonzero(array)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise _wrong(part, f"{array.shape} of {array.dtype}: give a bool mask, indexes (n,), or PackedBits")
    if len(array) and (int(array.min()) < 0 or int(array.max()) >= elements):
        raise _wrong(part, f"index {int(array.min())} or {int(array.max())} of {elements} elements")
    return np.unique(array).astype(np.int64)


def _array(part: HeldPart, given: Any) -> np.ndarray[Any, Any]:
    array = given.detach().cpu().numpy() if is_torch(given) else given
    if not isinstance(array, np.ndarray):
        raise _wrong(part, f"a {type(given).__name__}: give a NumPy array or torch tensor")
    return array


def _wrong(part: HeldPart, problem: str) -> InputError:
    return InputError("bad_argument", f"marks of tensor {part.name!r}: {problem}", where=part.name)


def chunked(live: LiveParts, number: int, indexes: Indexes) -> dict[int, Indexes]:
    """Marks of one part, chunk by chunk: row-major indexes into what the part has of the chunk, ascending."""
    box = live.parts[number].box
    grid = live.table.arrays[box.array].grid
    if not len(indexes):
        return {}
    within = np.unravel_index(indexes, box.size) if box.size else ()
    places = [np.full(len(indexes), box.member, np.int64)]
    places += [at + low for at, low in zip(within, box.lo, strict=True)]
    chunks = np.zeros(len(indexes), np.int64)
    flat = np.zeros(len(indexes), np.int64)
    bounds = zip(places, grid.chunk, grid.counts, (box.member, *box.lo), (1, *box.size), strict=True)
    for at, step, count, low, size in bounds:
        along = at // step
        chunks = chunks * count + along
        start = np.maximum(along * step, low)
        flat = flat * (np.minimum((along + 1) * step, low + size) - start) + (at - start)
    order = np.argsort(chunks, kind="stable")
    edges = np.flatnonzero(np.diff(chunks[order])) + 1
    groups = np.split(order, edges)
    return {int(chunks[group[0]]): flat[group] for group in groups}
