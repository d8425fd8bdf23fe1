"""Transfer plans: which boxes of which process one process needs, and whether a world holds a whole model.

Everything follows from the layouts alone, so every process derives the same plan, and may compare its hash.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from deltastore.errors import InputError
from deltastore.format.canonical import canonical_bytes
from deltastore.layout.boxes import Claim, ends_of, first_flaw
from deltastore.layout.checking import check_layout
from deltastore.layout.meeting import BoxIndex
from deltastore.layout.pieces import Axes, Layout, Piece

__all__ = ["Copy", "Plan", "check_world", "make_plan"]


@dataclass(frozen=True, slots=True, order=True)
class Copy:
    """Box ``[lo, lo + size)`` of ``tensor`` goes from process ``source`` to where it is needed.

    ``given`` and ``taken``: numbers of the pieces, in the two layouts, that the box lies in.
    """

    tensor: str
    lo: Axes
    size: Axes
    source: int
    given: int
    taken: int


@dataclass(frozen=True)
class Plan:
    """What one process needs, sorted; each of its elements comes from exactly one process.

    ``sources`` and ``target``: the layouts that it was made of.
    """

    copies: tuple[Copy, ...]
    sources: Sequence[Layout]
    target: Layout

    @cached_property
    def sha256(self) -> str:
        """Of what goes from where to where. The same on every process, in whatever order pieces are listed.

        Two processes that hold different layouts for right have different hashes, though they may move the
        same elements.
        """
        rows = []
        for copy in self.copies:
            given = self.sources[copy.source].pieces[copy.given].narrowed(copy.lo, copy.size)
            taken = self.target.pieces[copy.taken].narrowed(copy.lo, copy.size)
            stands = [[one.param, list(one.at), list(one.axes)] for one in (given, taken)]
            rows.append([copy.tensor, list(copy.lo), list(copy.size), copy.source, *stands])
        return hashlib.sha256(canonical_bytes(sorted(rows))).hexdigest()


def make_plan(sources: Sequence[Layout], target: Layout) -> Plan:
    """What ``target`` needs of the processes whose layouts are ``sources``, in the order of their ranks.

    Only pieces of replica 0 give. Raises ``InputError("bad_layout")`` for a layout that is not sound, and
    naming a tensor of which elements are given by nobody, or by two.
    """
    for layout in (*sources, target):
        check_layout(layout)
    giving: dict[str, list[tuple[int, int, Piece]]] = {}
    for rank, layout in enumerate(sources):
        for number, piece in enumerate(layout.pieces):
            if piece.replica == 0:
                giving.setdefault(piece.tensor, []).append((rank, number, piece))
    givers = {tensor: _Givers(given) for tensor, given in giving.items()}
    copies: list[Copy] = []
    for number, piece in enumerate(target.pieces):
        found = list(givers[piece.tensor].copies(number, piece)) if piece.tensor in givers else []
        claims: list[Claim] = []
        for one in found:
            low = tuple(map(operator.sub, one.lo, piece.lo))
            claims.append((low, ends_of(low, one.size), sources[one.source].name))
        flaw = first_flaw(piece.size, claims)
        if flaw is not None:
            raise _flawed(piece.tensor, piece.lo, flaw.where, flaw.owners)
        copies += found
    return Plan(tuple(sorted(copies)), sources, target)


class _Givers:
    """Pieces of one tensor, each with its process and its number there."""

    def __init__(self, giving: Sequence[tuple[int, int, Piece]]) -> None:
        self._giving = giving
        self._index = BoxIndex([(piece.lo, piece.size) for _, _, piece in giving])

    def copies(self, taken: int, piece: Piece) -> Iterator[Copy]:
        """What they give of ``piece``, which is number ``taken``."""
        for met, shared in self._index.meeting(piece.lo, piece.size):
            rank, number, _ = self._giving[met]
            yield Copy(piece.tensor, *shared, rank, number, taken)


def check_world(layouts: Sequence[Layout]) -> None:
    """Whether the pieces of replica 0 in all of ``layouts`` are every element of the model exactly once.

    Raises ``InputError``: ``bad_layout`` for a layout that is not sound, and naming the tensor, the elements,
    and who holds them; ``bad_argument`` without any layout.
    """
    if not layouts:
        raise InputError("bad_argument", "a world has processes: give the layout of each of them")
    claims: dict[str, list[Claim]] = {}
    for layout in layouts:
        check_layout(layout)
        for piece in layout.pieces:
            if piece.replica == 0:
                claim = (piece.lo, ends_of(piece.lo, piece.size), layout.name)
                claims.setdefault(piece.tensor, []).append(claim)
    for tensor in layouts[0].tensors:
        flaw = first_flaw(tensor.shape, claims.get(tensor.name, ()))
        if flaw is not None:
            raise _flawed(tensor.name, (0,) * len(tensor.shape), flaw.where, flaw.owners)


def _flawed(
    tensor: str, origin: Axes, where: tuple[tuple[int, int], ...], owners: tuple[str, ...]
) -> InputError:
    box = ", ".join(f"{at + low}:{at + high}" for at, (low, high) in zip(origin, where, strict=True))
    problem = f"given by both {owners[0]} and {owners[1]}" if owners else "given by nobody"
    return InputError("bad_layout", f"elements [{box}] of tensor {tensor!r} are {problem}", where=tensor)
