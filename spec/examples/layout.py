"""A layout, and what stands in the memory that it describes (SPEC 21)."""

from __future__ import annotations

from spec.decoder.layout import decode_layout
from spec.examples.encoders import Json, sealed

__all__ = ["layout_bytes", "layout_text", "memory_text"]

_LAYOUT: Json = {
    "kind": "layout",
    "name": "an engine",
    "tensors": [
        {"pattern": "experts.*", "dtype": "BF16", "shape": [3, 2], "members": [[[0, 2]]]},
        {"pattern": "k", "dtype": "BF16", "shape": [1, 2], "members": [[]]},
        {"pattern": "q", "dtype": "BF16", "shape": [2, 2], "members": [[]]},
    ],
    "params": [
        {"name": "experts", "dtype": "BF16", "shape": [4, 3], "view": [2, 2, 3]},
        {"name": "qk", "dtype": "F32", "shape": [4, 2], "view": None},
    ],
    "pieces": [
        [0, [0, 0], [3, 2], 0, [0, 0, 0], [2, 1], 0],
        [1, [0, 0], [3, 2], 0, [1, 0, 0], [2, 1], 0],
        [2, [0, 0], [1, 2], 1, [2, 0], [0, 1], 1],
        [3, [0, 0], [2, 2], 1, [0, 0], [0, 1], 0],
    ],
    "holes": [[1, [3, 0], [1, 2]]],
    "aliases": {"q_again": "q"},
    "ties": {"qk_again": "qk"},
    "unheld": ["vision."],
}


def layout_bytes() -> bytes:
    """The stored bytes."""
    return sealed(_LAYOUT)


def layout_text() -> str:
    """SPEC 21: the object."""
    return layout_bytes().decode()


def memory_text() -> str:
    """SPEC 21: every element of every parameter, row-major: tensor and row-major index in it."""
    memory = decode_layout(layout_bytes())
    wide = max(map(len, memory))
    rows = []
    for param in _LAYOUT["params"]:
        columns = param["shape"][-1]
        found = ["-" if one is None else f"{one[0]}[{one[1]}]" for one in memory[param["name"]]]
        for start in range(0, len(found), columns):
            row = "  ".join(f"{one:<12}" for one in found[start : start + columns])
            rows.append(f"{param['name'] if start == 0 else '':<{wide}}  {row}".rstrip())
    return "\n".join(rows)
