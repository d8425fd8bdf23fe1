"""Parts of tensors: what one of several trainer processes holds, as boxes of whole tensors."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deltastore.errors import InputError

__all__ = ["Part", "flat_boxes", "flat_parts", "intersection", "is_contiguous", "slices_at"]

Axes = tuple[int, ...]
Box = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A live tensor that is the box ``[start, start + tensor.shape)`` of a tensor of shape ``shape``.

    ``tensor``: a NumPy array or torch tensor with as many axes as ``shape``; its extents may be 0, as on a
    process that got nothing of a tensor.
    """

    tensor: Any
    shape: tuple[int, ...]
    start: tuple[int, ...]

    def __post_init__(self) -> None:
        size = tuple(self.tensor.shape)
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "start", tuple(self.start))
        fits = len(size) == len(self.shape) == len(self.start) and all(
            first >= 0 and first + length <= whole
            for first, length, whole in zip(self.start, size, self.shape, strict=True)
        )
        if not fits:
            raise InputError(
                "wrong_shape",
                f"a part of shape {list(size)} from {list(self.start)} is no box of a tensor of shape "
                f"{list(self.shape)}",
            )


def flat_parts(tensor: Any, shape: Sequence[int], first: int, *, box: Box | None = None) -> tuple[Part, ...]:
    """A one-dimensional run of a tensor's elements, row-major from index ``first`` on, as parts.

    This is what a flat optimizer buffer holds of a tensor. ``tensor``: one axis, contiguous; the parts share
    its memory. ``box``: (start, size) of what the buffer was laid out from where that is not all of the
    tensor, as under tensor parallelism; ``first`` counts the elements of the box then. At most
    ``2 * len(shape) - 1`` parts. Raises ``InputError("wrong_shape")``.
    """
    whole = tuple(shape)
    origin, extent = ((0,) * len(whole), whole) if box is None else (tuple(box[0]), tuple(box[1]))
    if not len(origin) == len(extent) == len(whole) or any(length < 0 for length in extent):
        raise InputError(
            "wrong_shape",
            f"{list(extent)} elements from {list(origin)} are no box of a tensor of shape {list(whole)}",
        )
    if len(tensor.shape) != 1 or not 0 <= first <= first + tensor.shape[0] <= math.prod(extent):
        of = f"the box of {list(extent)} elements from {list(origin)} of " if box is not None else ""
        raise InputError(
            "wrong_shape",
            f"elements of shape {list(tensor.shape)} from index {first} are no run of {of}a tensor of shape "
            f"{list(whole)}",
        )
    _check_contiguous(tensor)
    parts = []
    at = 0
    for start, size in flat_boxes(extent, first, tensor.shape[0]):
        count = math.prod(size)
        low = tuple(map(operator.add, origin, start))
        parts.append(Part(tensor[at : at + count].reshape(size), whole, low))
        at += count
    return tuple(parts)


def is_contiguous(tensor: Any) -> bool:
    """Whether a NumPy array or torch tensor stands in memory row-major and without gaps."""
    return bool(tensor.is_contiguous() if hasattr(tensor, "is_contiguous") else tensor.flags.c_contiguous)


def _check_contiguous(tensor: Any) -> None:
    """Else the parts would be copies."""
    if not is_contiguous(tensor):
        raise InputError("wrong_memory", "a run of elements must be contiguous in memory: give such a view")


def flat_boxes(
    shape: tuple[int, ...], first: int, count: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The run ``[first, first + count)`` of row-major indexes as (start, size) of boxes, in order."""
    if not count:
        return
    if not shape:
        yield (), ()
        return
    inner = math.prod(shape[1:])
    row, within = divmod(first, inner)
    if within or count < inner:
        head = min(count, inner - within)
        for start, size in flat_boxes(shape[1:], within, head):
            yield (row, *start), (1, *size)
        yield from flat_boxes(shape, first + head, count - head)
        return
    rows = count // inner
    yield (row, *(0 for _ in shape[1:])), (rows, *shape[1:])
    yield from flat_boxes(shape, first + rows * inner, count - rows * inner)


def intersection(lo: Axes, size: Axes, start: Axes, extent: Axes) -> tuple[Axes, Axes] | None:
    """(start, size) of what the box of ``size`` at ``lo`` shares with that of ``extent`` at ``start``."""
    low = tuple(map(max, lo, start))
    high = tuple(min(a + b, c + d) for a, b, c, d in zip(lo, size, start, extent, strict=True))
    shared = tuple(b - a for a, b in zip(low, high, strict=True))
    return (low, shared) if all(length > 0 for length in shared) else None


def slices_at(lo: Axes, size: Axes, origin: Axes) -> tuple[slice, ...]:
    """The box of ``size`` at ``lo`` as an index into an ndarray whose first element stands at ``origin``."""
    return tuple(slice(a - c, a - c + b) for a, b, c in zip(lo, size, origin, strict=True))
