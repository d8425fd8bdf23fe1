"""Tables that other vectors stand on, and the stored form of any."""

from __future__ import annotations

from typing import Any

from deltastore.format.canonical import canonical_bytes, seal
from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec, TensorTable
from deltastore.layout.cutting import plain_table

Fields = dict[str, Any]


def dense_model() -> TensorTable:
    """A small dense model under the plain grid, with a gap in its layers and one tensor of each odd shape."""
    bf16, f32 = DTYPES["BF16"], DTYPES["F32"]
    specs = [TensorSpec(f"layers.{layer}.w", (4, 4), bf16) for layer in (0, 1, 3)]
    specs += [TensorSpec(f"layers.{layer}.experts.{e}.w", (2, 3), bf16) for layer in (0, 1) for e in range(3)]
    specs += [TensorSpec("norm", (8,), bf16), TensorSpec("scale", (), f32), TensorSpec("none", (0, 4), f32)]
    return plain_table(specs)


def slab_model() -> TensorTable:
    """Slabs by axis, by member, and common."""
    arrays = [
        array_of("experts.*.w", (4, 8), [[[0, 4]]], [1, 4, 8], {"by": "member", "of": 0, "count": 4}),
        array_of("norm", (8,), [[]], [1, 8], {"by": "common", "of": 0, "count": 0}),
        array_of("proj", (8, 6), [[]], [1, 2, 6], {"by": "axis", "of": 1, "count": 0}),
    ]
    return TensorTable.from_bytes(sealed_table({"arrays": arrays, "slabs": 2}), "table")


def array_of(pattern: str, shape: tuple[int, ...], members: Any, chunk: list[int], slab: Fields) -> Fields:
    """An array of BF16."""
    return {
        "pattern": pattern,
        "dtype": "BF16",
        "shape": list(shape),
        "members": members,
        "chunk": chunk,
        "slab": slab,
    }


def sealed_table(fields: Fields) -> bytes:
    """The stored form of a table."""
    return canonical_bytes(seal({"format": 1, "kind": "table", **fields}))
