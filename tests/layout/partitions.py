"""How trainers split a model: rows, columns, flat buffers, boxes of any kind; always each element once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from deltastore.layout.parts import Part, flat_boxes, slices_at

__all__ = ["STYLES", "Box", "Split", "parts_of", "split_flat", "split_model", "split_tensor"]

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Start and size over the axes of one tensor."""

Split = list[dict[str, list[Box]]]
"""For every rank, what it holds of each tensor."""

STYLES = ("rows", "axis", "flat", "boxes", "one", "buffer")


def split_tensor(
    random: np.random.Generator, shape: tuple[int, ...], ranks: int, style: str
) -> list[list[Box]]:
    """The boxes of one tensor that each rank holds. Ranks may get nothing, or boxes of no elements."""
    if style == "flat":
        ends = _cuts(random, math.prod(shape), ranks)
        return [list(flat_boxes(shape, low, high - low)) for low, high in ends]
    if style in ("rows", "axis") and shape:
        axis = 0 if style == "rows" else int(random.integers(len(shape)))
        return [[_along(shape, axis, low, high)] for low, high in _cuts(random, shape[axis], ranks)]
    held: list[list[Box]] = [[] for _ in range(ranks)]
    whole: Box = ((0,) * len(shape), shape)
    for box in _pieces(random, whole, 5) if style == "boxes" else [whole]:
        held[int(random.integers(ranks))].append(box)
    return held


def split_flat(model: Mapping[str, tuple[int, ...]], ranks: int) -> Split:
    """Equal runs of one buffer that holds all tensors, one after another: a flat optimizer's."""
    total, at = sum(map(math.prod, model.values())), 0
    split: Split = [{} for _ in range(ranks)]
    for name, shape in model.items():
        size = math.prod(shape)
        first, last = at * ranks // max(total, 1), (at + size) * ranks // max(total, 1)
        for rank in range(max(first - 1, 0), min(last + 1, ranks)):
            low, high = max(total * rank // ranks, at), min(total * (rank + 1) // ranks, at + size)
            if low < high:
                split[rank][name] = list(flat_boxes(shape, low - at, high - low))
        at += size
    return split


def split_model(
    random: np.random.Generator, model: Mapping[str, Any], ranks: int, style: str = "any"
) -> Split:
    """A split of all tensors; ``any`` draws a style for each."""
    shapes = {name: tuple(tensor.shape) for name, tensor in model.items()}
    if style == "buffer":
        return split_flat(shapes, ranks)
    split: Split = [{} for _ in range(ranks)]
    for name, shape in shapes.items():
        chosen = STYLES[int(random.integers(len(STYLES) - 1))] if style == "any" else style
        for rank, boxes in enumerate(split_tensor(random, shape, ranks, chosen)):
            if boxes:
                split[rank][name] = boxes
    return split


def parts_of(model: Mapping[str, Any], held: Mapping[str, list[Box]]) -> dict[str, list[Part]]:
    """One rank's parts: views of the whole model's memory."""
    return {
        name: [
            Part(
                model[name][(*slices_at(start, size, (0,) * len(start)), ...)],
                tuple(model[name].shape),
                start,
            )
            for start, size in boxes
        ]
        for name, boxes in held.items()
    }


def _cuts(random: np.random.Generator, length: int, ranks: int) -> list[tuple[int, int]]:
    """``ranks`` runs of uneven lengths, some of them empty."""
    inner = sorted(int(random.integers(length + 1)) for _ in range(ranks - 1))
    return list(zip([0, *inner], [*inner, length], strict=True))


def _along(shape: tuple[int, ...], axis: int, low: int, high: int) -> Box:
    start = tuple(low if at == axis else 0 for at in range(len(shape)))
    return start, tuple(high - low if at == axis else length for at, length in enumerate(shape))


def _pieces(random: np.random.Generator, box: Box, depth: int) -> list[Box]:
    """The box cut in two, again and again."""
    start, size = box
    axes = [axis for axis, length in enumerate(size) if length > 1]
    if not axes or not depth or random.random() < 0.2:
        return [box]
    axis = axes[int(random.integers(len(axes)))]
    cut = int(random.integers(1, size[axis]))
    low = tuple(cut if at == axis else length for at, length in enumerate(size))
    high = tuple(length - cut if at == axis else length for at, length in enumerate(size))
    beyond = tuple(first + cut if at == axis else first for at, first in enumerate(start))
    return _pieces(random, (start, low), depth - 1) + _pieces(random, (beyond, high), depth - 1)
