"""Experts as engines hold them: all of a process stacked in two parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deltastore.errors import InputError
from deltastore.layout.drawing import Drawing
from deltastore.layout.engines.private_layouts import refuse_private
from deltastore.layout.model import GatedMlp
from deltastore.layout.share import Share

__all__ = ["STANDARD", "TRANSPOSED", "UP_FIRST", "Orientation", "draw_experts", "orientation_named"]


@dataclass(frozen=True, slots=True)
class Orientation:
    """``transposed``: a slot is (hidden, rows) and not (rows, hidden). ``up_first``: up comes before gate."""

    transposed: bool = False
    up_first: bool = False


STANDARD = Orientation()
TRANSPOSED = Orientation(transposed=True)
UP_FIRST = Orientation(up_first=True)


def orientation_named(name: str, known: Mapping[str, Orientation]) -> Orientation:
    """The orientation of that name, of those that an engine has.

    Raises ``InputError("private_layout")`` for a kernel whose memory no layout can say, and
    ``InputError("bad_argument")`` for a name that is not known.
    """
    if isinstance(name, str):
        if name in known:
            return known[name]
        refuse_private(name, known=tuple(known))
    raise InputError("bad_argument", f"experts={name!r:.80} is not known; known are {', '.join(known)}")


def draw_experts(
    drawing: Drawing,
    slots: Sequence[tuple[GatedMlp, int]],
    prefix: str,
    share: Share,
    orientation: Orientation,
) -> None:
    """``w13_weight`` and ``w2_weight`` under ``prefix``: one slot for each expert, with its number of copy.

    With n slots and f rows of each expert here they are (n, 2f, hidden) and (n, hidden, f), ``transposed``
    (n, hidden, 2f) and (n, f, hidden).
    """
    into, out = f"{prefix}.w13_weight", f"{prefix}.w2_weight"
    weight = slots[0][0].gate.weight
    rows, hidden = weight.shape
    first, count = share.cut(rows, "rows of every expert", into)
    shapes = ((2 * count, hidden), (hidden, count))
    axes = (1, 2)
    if orientation.transposed:
        shapes = ((hidden, 2 * count), (count, hidden))
        axes = (2, 1)
    drawing.param(into, (len(slots), *shapes[0]), weight.dtype)
    drawing.param(out, (len(slots), *shapes[1]), weight.dtype)
    for slot, (expert, copy) in enumerate(slots):
        halves = (expert.up, expert.gate) if orientation.up_first else (expert.gate, expert.up)
        for half, linear in enumerate(halves):
            at = (slot, 0, half * count) if orientation.transposed else (slot, half * count, 0)
            drawing.place(
                linear.weight, into, lo=(first, 0), size=(count, hidden), at=at, axes=axes, replica=copy
            )
        drawing.place(
            expert.down.weight,
            out,
            lo=(0, first),
            size=(hidden, count),
            at=(slot, 0, 0),
            axes=axes,
            replica=copy,
        )
