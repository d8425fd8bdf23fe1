"""Whether the boxes that several processes hold are each element of a model exactly once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from deltastore.errors import InputError
from deltastore.format.table import TensorTable
from deltastore.layout.boxes import Claim, Flaw, ends_of, first_flaw, is_inside

__all__ = ["OwnedBox", "check_coverage", "merged_members"]


@dataclass(frozen=True, slots=True, order=True)
class OwnedBox:
    """A box of array ``array`` over (member, tensor axes)."""

    array: int
    start: tuple[int, ...]
    size: tuple[int, ...]


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
    claims: list[list[Claim]] = [[] for _ in table.arrays]
    for owner, boxes in owned:
        for box in boxes:
            extent = table.arrays[box.array].grid.extent if 0 <= box.array < len(table.arrays) else ()
            _check_inside(owner, box, extent)
            claims[box.array].append((box.start, ends_of(box.start, box.size), owner))
    for number, array in enumerate(table.arrays):
        flaw = first_flaw(array.grid.extent, claims[number])
        if flaw is not None:
            raise _flawed(table, number, flaw)


def _check_inside(owner: str, box: OwnedBox, extent: tuple[int, ...]) -> None:
    if not extent or not is_inside(box.start, box.size, extent):
        raise InputError(
            "bad_argument",
            f"{owner} claims box {list(box.size)} from {list(box.start)} of array {box.array}, "
            f"which has extent {list(extent)}",
        )


_MOST_SHOWN: Final = 4


def _flawed(table: TensorTable, array: int, flaw: Flaw) -> InputError:
    members, inner = flaw.where[0], flaw.where[1:]
    name = table.arrays[array].names[members[0]]
    more = "" if members[1] - members[0] == 1 else f" and {members[1] - members[0] - 1} more like it"
    box = ", ".join(f"{low}:{high}" for low, high in inner)
    who = " and ".join(flaw.owners[:_MOST_SHOWN])
    problem = f"held by both {who}: only one may publish them" if flaw.owners else "held by nobody"
    return InputError("bad_argument", f"elements [{box}] of tensor {name!r}{more} are {problem}", where=name)
