"""Tensor names, patterns and member indexes (SPEC section "Arrays and members")."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from deltastore.format.limits import INDEXES

__all__ = ["INDEX_END", "PLACE", "Index", "MemberBox", "are_fewest", "box_members", "join_name", "split_name"]

Index = tuple[int, ...]
MemberBox = tuple[tuple[int, int], ...]

PLACE: Final = "*"
"""What stands in a pattern where the name has an index."""

INDEX_END: Final = 10**9
"""Every index is below this: a decimal of at most nine digits."""

_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)


def split_name(name: str) -> tuple[str, Index]:
    """``model.layers.3.mlp.experts.17.up_proj.weight`` -> (``model.layers.*.mlp.experts.*...``, (3, 17)).

    Only canonical decimals below 10**9 are taken out: ``layers.03`` stays text. A name that has a component
    ``*`` of its own, or more than 8 indexes, stays whole, with no index.
    """
    parts = name.split(".")
    if PLACE in parts:
        return name, ()
    index = tuple(int(part) for part in parts if _DECIMAL.fullmatch(part))
    if len(index) > INDEXES:
        return name, ()
    return ".".join(PLACE if _DECIMAL.fullmatch(part) else part for part in parts), index


def join_name(pattern: str, index: Index) -> str:
    """The inverse of ``split_name``; ``ValueError`` if the number of indexes does not fit the pattern."""
    if not index:
        return pattern
    parts = pattern.split(".")
    if parts.count(PLACE) != len(index):
        raise ValueError(f"pattern {pattern!r} does not take {len(index)} indexes")
    values = iter(index)
    return ".".join(str(next(values)) if part == PLACE else part for part in parts)


def box_members(indexes: Sequence[Index]) -> tuple[MemberBox, ...]:
    """The member order of an array: its indexes ascending, written as few boxes as that order allows.

    Neighbouring first indexes whose remainders are one and the same box are merged, from the last index
    outwards, so the result depends on the set alone.
    """
    ordered = sorted(indexes)
    return tuple(_boxes(ordered))


def are_fewest(boxes: Sequence[MemberBox]) -> bool:
    """Whether ``boxes``, none of them empty, are what ``box_members`` gives for their members.

    Time and memory as there are boxes, however many members those have.
    """
    if not boxes[0]:
        return len(boxes) == 1
    at = end = 0
    # What boxes have beyond their first index where that is `at`, none when no box can come any more; and
    # whether the first of these boxes would be one with the box before it, were it alone.
    rests: list[MemberBox] = []
    joins = False
    before: MemberBox | None = None
    for box in boxes:
        (low, high), rest = box[0], box[1:]
        if not rests or low != at:
            if low < end or not _is_group(rests, joins=joins):
                return False
            at, rests = low, []
            joins = before is not None and before[0][1] == low and before[1:] == rest
        rests.append(rest)
        end = high
        if high > low + 1:
            if not _is_group(rests, joins=joins):
                return False
            rests = []
        before = box
    return _is_group(rests, joins=joins)


def _is_group(rests: Sequence[MemberBox], *, joins: bool) -> bool:
    return not joins if len(rests) == 1 else not rests or are_fewest(rests)


def _boxes(ordered: list[Index]) -> list[MemberBox]:
    if not ordered[0]:
        return [()]
    boxes: list[MemberBox] = []
    for first, group in groupby(ordered, key=lambda index: index[0]):
        rest = _boxes([index[1:] for index in group])
        last = boxes[-1] if boxes else None
        if len(rest) == 1 and last is not None and last[0][1] == first and last[1:] == rest[0]:
            boxes[-1] = ((last[0][0], first + 1), *rest[0])
        else:
            boxes.extend(((first, first + 1), *box) for box in rest)
    return boxes
