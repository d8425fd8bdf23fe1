"""Tensor names, patterns and member indexes (SPEC section "Arrays and members")."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from deltastore.format.limits import INDEXES

__all__ = ["INDEX_END", "PLACE", "Index", "MemberBox", "box_members", "join_name", "split_name"]

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
