"""Boxes that are to be each element of a space exactly once: where they are not, and whose they are."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from deltastore.errors import InputError

__all__ = ["Claim", "Flaw", "ends_of", "first_flaw", "is_inside"]

_LEAST_WORK: Final = 1_000_000
_WORK_PER_CLAIM: Final = 64

Claim = tuple[tuple[int, ...], tuple[int, ...], str]
"""Start and end of a box along the axes that are still to be looked at, and who holds it."""


def ends_of(start: tuple[int, ...], size: tuple[int, ...]) -> tuple[int, ...]:
    """The end of a box along each axis."""
    return tuple(map(operator.add, start, size))


def is_inside(start: tuple[int, ...], size: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a box has elements, and all of them are in ``[0, shape)``."""
    return len(start) == len(size) == len(shape) and all(
        first >= 0 and length > 0 and first + length <= whole
        for first, length, whole in zip(start, size, shape, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Flaw:
    """A range along each axis that no claim covers (``owners`` is empty), or that several do."""

    where: tuple[tuple[int, int], ...]
    owners: tuple[str, ...]


def first_flaw(extent: tuple[int, ...], claims: Sequence[Claim]) -> Flaw | None:
    """The first part of ``[0, extent)`` that no claim covers, or more than one; None where there is none.

    A sweep along the first axis, and along the others wherever what is met there changes. An extent of 0
    has no flaw. Claims are known to lie inside. Raises ``InputError("bad_layout")`` for boxes that cut each
    other along so many axes that comparing them would take for ever.
    """
    if 0 in extent:
        return None
    held = [claim for claim in claims if all(map(int.__lt__, claim[0], claim[1]))]
    return _sweep(extent, held, _Work(_LEAST_WORK + _WORK_PER_CLAIM * (1 + len(extent)) * len(held)))


@dataclass(slots=True)
class _Work:
    """How many claims may still be looked at."""

    left: int

    def take(self, claims: int) -> None:
        self.left -= claims
        if self.left < 0:
            raise InputError(
                "bad_layout", "boxes cut each other along too many axes: give fewer, larger ones"
            )


def _sweep(extent: tuple[int, ...], claims: Sequence[Claim], work: _Work) -> Flaw | None:
    work.take(len(claims))
    if not claims:
        return Flaw(tuple((0, length) for length in extent), ())
    if len(claims) == 1 and claims[0][1] == extent and not any(claims[0][0]):
        return None
    if not extent:
        owners = tuple(owner for _, _, owner in claims)
        return None if len(owners) == 1 else Flaw((), owners)
    starting = sorted(claims, key=lambda claim: claim[0][0])
    cuts = sorted({0, extent[0], *(claim[0][0] for claim in claims), *(claim[1][0] for claim in claims)})
    active: list[Claim] = []
    taken = 0
    seen: tuple[Claim, ...] | None = None
    for low, high in itertools.pairwise(cuts):
        active = [claim for claim in active if claim[1][0] > low]
        while taken < len(starting) and starting[taken][0][0] <= low:
            active.append(starting[taken])
            taken += 1
        inner = tuple((start[1:], end[1:], owner) for start, end, owner in active)
        if inner == seen:
            continue
        flaw = _sweep(extent[1:], inner, work)
        if flaw is not None:
            return Flaw(((low, high), *flaw.where), flaw.owners)
        seen = inner
    return None
