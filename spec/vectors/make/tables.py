"""Tensor tables, good and bad: SPEC section 7."""

from __future__ import annotations

from typing import Any

from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorTable
from spec.vectors.make.bad_tables import bad_tables
from spec.vectors.make.sample_tables import array_of, dense_model, sealed_table, slab_model

Fields = dict[str, Any]


def _good(name: str, table: TensorTable) -> Fields:
    tensors = sorted([tensor, array, member] for tensor, (array, member) in table.places.items())
    slabs = [[array, chunk, slab] for slab, array, chunk in table.chunk_order().tolist()]
    chunks = [[array, len(spec.grid)] for array, spec in enumerate(table.arrays)]
    return {
        "name": name,
        "text": table.to_bytes().decode("latin-1"),
        "tensors": tensors,
        "chunks": chunks,
        "slabs": sorted(slabs),
    }


def _edges() -> list[tuple[str, TensorTable]]:
    """Every element type, and grids, names and members at their ends."""

    def table(*arrays: Fields, slabs: int = 0) -> TensorTable:
        return TensorTable.from_bytes(sealed_table({"arrays": list(arrays), "slabs": slabs}), "table")

    common = {"by": "common", "of": 0, "count": 0}
    nested = "a.*.*.*.*.*.*.*.*"
    return [
        ("no arrays", table()),
        (
            "every element type",
            table(
                *(
                    {**array_of("w." + dtype.lower(), (3,), [[]], [1, 2], common), "dtype": dtype}
                    for dtype in sorted(DTYPES)
                )
            ),
        ),
        (
            "one pattern in several element types and shapes",
            table(
                array_of("w.*", (2, 2), [[[0, 2]]], [1, 2, 2], common),
                array_of("w.*", (10,), [[[2, 3]]], [1, 4], common),
                {**array_of("w.*", (10,), [[[3, 4]]], [1, 4], common), "dtype": "F16"},
            ),
        ),
        (
            "a pattern of its own, and one with an index",
            table(
                array_of("w.*", (2,), [[]], [1, 2], common),
                array_of("w.*", (2,), [[[0, 1]], [[4, 5]]], [1, 2], common),
            ),
        ),
        ("rank 0", table(array_of("scale.*", (), [[[0, 5]]], [2], common))),
        ("16 axes", table(array_of("w", (1,) * 15 + (2,), [[]], [1] * 17, common))),
        ("extents of 0", table(array_of("w.*", (0, 4), [[[0, 2]]], [1, 3, 2], common))),
        ("a chunk larger than its array", table(array_of("w", (3,), [[]], [4, 2**18], common))),
        ("the largest chunk", table(array_of("w", (2**21 + 1,), [[]], [1, 2**20], common))),
        ("grids cut short on every axis", table(array_of("w.*", (5, 7), [[[0, 3]]], [2, 3, 4], common))),
        (
            "boxes of two indexes",
            table(array_of("a.*.b.*", (1,), [[[0, 1], [1, 2]], [[0, 3], [3, 4]]], [1, 1], common)),
        ),
        ("eight indexes", table(array_of(nested, (1,), [[[0, 1]] * 7 + [[0, 2]]], [1, 1], common))),
        ("the highest index", table(array_of("w.*", (1,), [[[10**9 - 1, 10**9]]], [1, 1], common))),
        ("a name of 1024 bytes", table(array_of("\u00e9" * 512, (1,), [[]], [1, 1], common))),
        ("an empty component", table(array_of("a..*", (1,), [[[0, 1]]], [1, 1], common))),
        (
            "4096 slabs",
            table(
                array_of("e.*", (1,), [[[0, 3]]], [1, 1], {"by": "member", "of": 0, "count": 3}),
                array_of("w.*", (7, 2), [[[0, 2]]], [1, 2, 1], {"by": "axis", "of": 1, "count": 0}),
                slabs=4096,
            ),
        ),
        (
            "slabs by the member axis, and by the second index",
            table(
                array_of("a.*.e.*", (1,), [[[0, 2], [1, 4]]], [1, 1], {"by": "member", "of": 1, "count": 8}),
                array_of("w.*", (1,), [[[0, 6]]], [2, 1], {"by": "axis", "of": 0, "count": 0}),
                slabs=3,
            ),
        ),
    ]


def vectors() -> object:
    """Stored text -> tensors, chunk counts and slabs; or what is refused."""
    good = [_good("a dense model under the plain grid", dense_model()), _good("slabs", slab_model())]
    return {"ok": good + [_good(*edge) for edge in _edges()], "err": bad_tables()}
