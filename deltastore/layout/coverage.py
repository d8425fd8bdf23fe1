"""Whether the boxes that several processes hold are each element of a model exactly once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from deltastore.errors import InputError
from deltastore.format.table import TensorTable

__all__ = ["OwnedBox", "check_coverage", "merged_members"]


@dataclass(frozen=True, slots=True, order=True)
class OwnedBox:
    """A box of array ``array`` over (member, tensor axes)."""

    array: int
    start: tuple[int, ...]
    size: tuple[int, ...]


_Claim = tuple[tuple[int, ...], tuple[int, ...], str]
"""Start and end of a box along the axes that are still to be looked at, and who holds it."""

_Where = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Flaw:
    where: _Where
    owners: tuple[str, ...]


def merged_members(boxes: Sequence[OwnedBox]) -> list[OwnedBox]:
    """The same elements in fewer boxes: equal boxes of consecutive members become one."""
    merged: list[OwnedBox] = []
    for box in sorted(boxes, key=lambda box: (box.array, box.start[1:], box.size[1:], box.start[0])):
        last = merged[-1] if merged else None
        if last is not None and _continues(last, box):
            merged[-1] = OwnedBox(box.array, last.start, (last.size[0] + box.size[0], *last.size[1:]))
        else:
            merged.append(box)
    return sorted(merged)


def _continues(last: OwnedBox, box: OwnedBox) -> bool:
    same = (last.array, last.start[1:], last.size[1:]) == (box.array, box.start[1:], box.size[1:])
    return same and box.start[0] == last.start[0] + last.size[0]


def check_coverage(table: TensorTable, owned: Sequence[tuple[str, Sequence[OwnedBox]]]) -> None:
    """Raise ``InputError("bad_argument")`` unless every element of ``table`` stands in exactly one box.

    ``owned``: who holds which boxes. The message names the tensor, the elements, and the two that both hold
    them, or that nobody does.
    """
    claims: list[list[_Claim]] = [[] for _ in table.arrays]
    for owner, boxes in owned:
        for box in boxes:
            extent = table.arrays[box.array].grid.extent if 0 <= box.array < len(table.arrays) else ()
            _check_inside(owner, box, extent)
            ends = tuple(first + length for first, length in zip(box.start, box.size, strict=True))
            claims[box.array].append((box.start, ends, owner))
    for number, array in enumerate(table.arrays):
        flaw = _first_flaw(array.grid.extent, claims[number]) if math.prod(array.grid.extent) else None
        if flaw is not None:
            raise _flawed(table, number, flaw)


def _check_inside(owner: str, box: OwnedBox, extent: tuple[int, ...]) -> None:
    inside = len(box.start) == len(box.size) == len(extent) > 0 and all(
        first >= 0 and length > 0 and first + length <= whole
        for first, length, whole in zip(box.start, box.size, extent, strict=True)
    )
    if not inside:
        raise InputError(
            "bad_argument",
            f"{owner} claims box {list(box.size)} from {list(box.start)} of array {box.array}, "
            f"which has extent {list(extent)}",
        )


def _first_flaw(extent: tuple[int, ...], claims: Sequence[_Claim]) -> _Flaw | None:
    """The first part of the axes that no claim covers, or more than one. A sweep along the first axis."""
    if not claims:
        return _Flaw(tuple((0, length) for length in extent), ())
    if not extent:
        owners = tuple(owner for _, _, owner in claims)
        return None if len(owners) == 1 else _Flaw((), owners)
    starting = sorted(claims, key=lambda claim: claim[0][0])
    cuts = sorted({0, extent[0], *(claim[0][0] for claim in claims), *(claim[1][0] for claim in claims)})
    active: list[_Claim] = []
    taken = 0
    seen: tuple[_Claim, ...] | None = None
    for low, high in itertools.pairwise(cuts):
        active = [claim for claim in active if claim[1][0] > low]
        while taken < len(starting) and starting[taken][0][0] <= low:
            active.append(starting[taken])
            taken += 1
        inner = tuple((start[1:], end[1:], owner) for start, end, owner in active)
        if inner == seen:
            continue
        flaw = _first_flaw(extent[1:], inner)
        if flaw is not None:
            return _Flaw(((low, high), *flaw.where), flaw.owners)
        seen = inner
    return None


_MOST_SHOWN: Final = 4


def _flawed(table: TensorTable, array: int, flaw: _Flaw) -> InputError:
    members, inner = flaw.where[0], flaw.where[1:]
    name = table.arrays[array].names[members[0]]
    more = "" if members[1] - members[0] == 1 else f" and {members[1] - members[0] - 1} more like it"
    box = ", ".join(f"{low}:{high}" for low, high in inner)
    who = " and ".join(flaw.owners[:_MOST_SHOWN])
    problem = f"held by both {who}: only one may publish them" if flaw.owners else "held by nobody"
    return InputError("bad_argument", f"elements [{box}] of tensor {name!r}{more} are {problem}", where=name)
