"""Layouts for people: one line a piece, or one line a process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from deltastore.cli.wording import percent, plain, plural, size
from deltastore.layout.pieces import Layout, Param, Piece

__all__ = ["layout_lines", "process_facts", "process_lines"]


def layout_lines(layout: Layout) -> list[str]:
    """Every piece: parameter, its shape and type, the box of a tensor, and where in the parameter that is."""
    rows = [("parameter", "shape", "type", "tensor", "at"), *_rows(layout)]
    return _aligned(rows)


def process_facts(layout: Layout, rank: int) -> dict[str, Any]:
    """What a process holds, in numbers."""
    return {
        "rank": rank,
        "parameters": len(layout.params),
        "pieces": len(layout.pieces),
        "tensors": len(layout.of_tensor),
        "elements": layout.elements,
        "bytes": layout.nbytes,
    }


def process_lines(facts: Sequence[dict[str, Any]], elements: int) -> list[str]:
    """A line for each process; ``elements``: those of the whole model."""
    rows = [("rank", "parameters", "pieces", "tensors", "memory", "of the model")]
    rows.extend(
        (
            str(one["rank"]),
            f"{one['parameters']:,}",
            f"{one['pieces']:,}",
            f"{one['tensors']:,}",
            size(one["bytes"]),
            percent(one["elements"], elements),
        )
        for one in facts
    )
    return [*_aligned(rows), f"the model has {plural(elements, 'element')}"]


def _rows(layout: Layout) -> Iterator[tuple[str, ...]]:
    padding: dict[str, list[str]] = {}
    for hole in layout.holes:
        padding.setdefault(hole.param, []).append(_box(hole.at, hole.size))
    for param in layout.params:
        start = (plain(param.name), _shape(param), param.dtype.name)
        for piece in layout.of_param.get(param.name, ()):
            yield (*start, f"{plain(piece.tensor)}[{_box(piece.lo, piece.size)}]", _place(piece))
        for box in padding.get(param.name, ()):
            yield (*start, "padding", f"[{box}]")
    for name, to in layout.ties.items():
        yield (plain(name), "", "", f"the memory of {plain(to)}", "")


def _shape(param: Param) -> str:
    shape = "x".join(map(str, param.shape))
    return shape if param.view is None else f"{shape} as {'x'.join(map(str, param.view))}"


def _place(piece: Piece) -> str:
    turned = list(piece.axes) != sorted(piece.axes)
    place = f"[{_box(piece.at, piece.extent)}]"
    return f"{place} transposed" if turned else place


def _box(start: Sequence[int], lengths: Sequence[int]) -> str:
    return ", ".join(f"{low}:{low + length}" for low, length in zip(start, lengths, strict=True))


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
