"""How four processes share a small model: by rows and by runs of elements, uneven, and some of them empty.

The tensors are NumPy's or torch's: nothing here knows which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deltastore.layout.live_parts import PartTensors
from deltastore.layout.parts import Part, flat_parts

__all__ = ["PROCESSES", "SHAPES", "assemble", "parts", "slices"]

PROCESSES = 4
SHAPES: dict[str, tuple[int, ...]] = {
    "0.weight": (13, 11),
    "0.bias": (13,),
    "2.weight": (5, 13),
    "2.bias": (5,),
    "scale": (),
}
_ROWS = {"0.weight": (0, 6, 6, 7, 13)}
"""Where the rows of each rank begin, and where the last one's end."""
_RUNS = {
    "0.bias": (0, 2, 5, 5, 13),
    "2.weight": (0, 20, 47, 47, 65),
    "2.bias": (0, 0, 0, 5, 5),
    "scale": (0, 0, 0, 0, 1),
}
"""Where the elements of each rank begin, of all in row-major order."""


def slices(whole: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """The views of ``whole`` that are a rank's: rows, or runs of elements."""
    views = {}
    for name, tensor in whole.items():
        cuts = _ROWS.get(name) or _RUNS[name]
        rows = tensor if name in _ROWS else tensor.reshape(-1)
        views[name] = rows[cuts[rank] : cuts[rank + 1]]
    return views


def parts(held: Mapping[str, Any], rank: int) -> PartTensors:
    """What a rank tells of the tensors that it holds, which have the shapes of its ``slices``."""
    told: dict[str, Part | Sequence[Part]] = {}
    for name, tensor in held.items():
        shape = SHAPES[name]
        if name in _ROWS:
            told[name] = Part(tensor, shape, (_ROWS[name][rank], *(0 for _ in shape[1:])))
        else:
            told[name] = flat_parts(tensor, shape, _RUNS[name][rank])
    return told


def assemble(held: Sequence[Mapping[str, Any]], into: Mapping[str, Any]) -> None:
    """Copy what all ranks hold to where it belongs in ``into``."""
    for rank, mine in enumerate(held):
        for name, view in slices(into, rank).items():
            view[...] = mine[name]
