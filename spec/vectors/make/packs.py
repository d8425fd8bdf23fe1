"""Packs and their indexes, good and bad: SPEC section 10."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from deltastore.format.digest import Digester, digest_text
from deltastore.format.dtypes import DTYPES
from deltastore.format.pack import PackBuilder, PackIndex
from deltastore.format.patch import encode_patch
from deltastore.format.table import TensorTable
from spec.vectors.make import by_hand
from spec.vectors.make.bad_packs import bad_packs
from spec.vectors.make.by_hand import Row, Run, patch_of
from spec.vectors.make.sample_tables import array_of, dense_model, sealed_table, slab_model

Fields = dict[str, Any]


def pack_of(table: TensorTable, *, every: int = 1) -> bytes:
    """A pack for every ``every``-th chunk of an all-zero model: first and last element become 1."""
    builder = PackBuilder(7, bytes(range(16)))
    digester = Digester(table)
    for slab, array, chunk in table.chunk_order().tolist()[::every]:
        spec = table.arrays[array]
        box = spec.grid.box(chunk)
        positions = np.array(sorted({0, box.elements - 1}), dtype=np.uint32)
        old = np.zeros(len(positions), dtype=spec.element.storage)
        new = old + spec.element.storage.type(1)
        patch = encode_patch(spec.element, box.elements, positions, old, new, None)
        builder.add(slab, array, chunk, patch, digester.difference(array, box, positions, old, new))
    return bytes(builder.finish().data)


def _good(name: str, table: TensorTable, data: bytes) -> Fields:
    index = PackIndex.parse(data, table, name)
    rows = [
        [
            int(row["array"]),
            int(row["chunk"]),
            int(row["length"]),
            int(row["count"]),
            int(row["encoding"]),
            digest_text(int(row["difference"])),
            start,
        ]
        for _, row, start, _ in index.patches()
    ]
    return {
        "name": name,
        "table": table.to_bytes().decode("latin-1"),
        "pack": data.hex(),
        "sha256": hashlib.sha256(data).hexdigest(),
        "rows": rows,
    }


def _raw() -> Fields:
    """A row of each encoding for each width of elements, and chunks that are cut short."""
    common = {"by": "common", "of": 0, "count": 0}
    arrays = [
        {**array_of(dtype.lower(), (5,), [[]], [1, 3], common), "dtype": dtype}
        for dtype in ("BF16", "C64", "F32", "U8")
    ]
    table = TensorTable.from_bytes(sealed_table({"arrays": arrays, "slabs": 0}), "table")
    rows = []
    for number, array in enumerate(arrays):
        dtype = DTYPES[array["dtype"]]
        raw = bytes(range(1, 3 * dtype.itemsize + 1))
        rows.append(Row(number, 0, raw + bytes(-len(raw) % 4), 3, encoding=1))
        rows.append(Row(number, 1, patch_of(2, dtype, Run(dtype.bits, {1: 5})), 1, difference=2**64 - 1))
    return _good("raw rows and runs, of chunks cut short", table, by_hand.pack_of(*rows, version=2**64 - 1))


def vectors() -> object:
    """Table and pack -> rows with the offset of each patch; or what is refused."""
    dense, slabs = dense_model(), slab_model()
    good = [
        _good("every chunk of a dense model", dense, pack_of(dense)),
        _good("every chunk, in slab order", slabs, pack_of(slabs)),
        _good("every third chunk", slabs, pack_of(slabs, every=3)),
        _raw(),
    ]
    return {"ok": good, "err": bad_packs(slabs, pack_of(slabs))}
