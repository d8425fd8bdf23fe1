"""A box of a row-major tensor as runs of neighbouring elements: what one read or write can carry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deltastore.kernels.grid import Indexes

__all__ = ["Runs", "box_runs"]


@dataclass(frozen=True, slots=True)
class Runs:
    """``length`` elements from each flat index in ``starts`` (int64, ascending), in the box's own order."""

    length: int
    starts: Indexes


def box_runs(shape: Sequence[int], start: Sequence[int], size: Sequence[int]) -> Runs:
    """The fewest equal runs that make up the box ``start``, ``size`` of a tensor of ``shape``.

    A tensor without axes is one run of one element; an empty box has no runs.
    """
    if math.prod(size) == 0:
        return Runs(0, np.zeros(0, dtype=np.int64))
    length, axis = 1, len(shape)
    while axis > 0:
        axis -= 1
        length *= size[axis]
        if size[axis] != shape[axis]:
            break
    strides = [math.prod(shape[inner + 1 :]) for inner in range(len(shape))]
    first = sum(start[inner] * strides[inner] for inner in range(axis, len(shape)))
    starts = np.array([first], dtype=np.int64)
    for outer in range(axis - 1, -1, -1):
        steps = np.arange(start[outer], start[outer] + size[outer], dtype=np.int64) * strides[outer]
        starts = (steps[:, None] + starts[None, :]).reshape(-1)
    return Runs(length, starts)
