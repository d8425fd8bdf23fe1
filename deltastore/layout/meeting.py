"""Which of many boxes of one space meet a given one, without looking at all of them."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence

from deltastore.layout.parts import intersection

__all__ = ["BoxIndex", "Span"]

Axes = tuple[int, ...]
Span = tuple[Axes, Axes]
"""Start and size of a box."""


class BoxIndex:
    """``boxes`` (start, size) of one space, sorted along the axis along which most of them begin apart."""

    def __init__(self, boxes: Sequence[Span]) -> None:
        self._boxes = boxes
        rank = len(boxes[0][0]) if boxes else 0
        self._axis = max(range(rank), key=lambda axis: len({lo[axis] for lo, _ in boxes}), default=-1)
        if self._axis < 0:
            self._order, self._lows, self._ends = list(range(len(boxes))), [0] * len(boxes), [1] * len(boxes)
            return
        self._order = sorted(range(len(boxes)), key=lambda number: boxes[number][0][self._axis])
        self._lows = [boxes[number][0][self._axis] for number in self._order]
        ends = (boxes[number][0][self._axis] + boxes[number][1][self._axis] for number in self._order)
        self._ends = list(itertools.accumulate(ends, max))

    def meeting(self, lo: Axes, size: Axes) -> Iterator[tuple[int, Span]]:
        """Number of every box that meets ``[lo, lo + size)``, ascending, and what the two share."""
        low, high = (lo[self._axis], lo[self._axis] + size[self._axis]) if self._axis >= 0 else (0, 1)
        first, last = bisect.bisect_right(self._ends, low), bisect.bisect_left(self._lows, high)
        for number in sorted(self._order[first:last]):
            shared = intersection(*self._boxes[number], lo, size)
            if shared is not None:
                yield number, shared
