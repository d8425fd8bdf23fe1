"""Packs and their indexes, good and bad: SPEC section 10."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from deltastore.format.digest import Digester, digest_text
from deltastore.format.pack import HEADER_BYTES, ROW, PackBuilder, PackIndex, index_bytes
from deltastore.format.patch import encode_patch
from deltastore.format.table import TensorTable
from spec.vectors.make.tables import dense_model, slab_model

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
    import hashlib

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


def _bad(table: TensorTable) -> list[Fields]:
    good = pack_of(table)
    count = int.from_bytes(good[12:16], "little")

    def poked(at: int, value: bytes) -> bytes:
        return good[:at] + value + good[at + len(value) :]

    def rows_changed(change: Callable[[Any], Any]) -> bytes:
        rows = np.frombuffer(good, dtype=ROW, count=count, offset=HEADER_BYTES).copy()
        rows = change(rows)
        return good[:HEADER_BYTES] + rows.tobytes() + good[index_bytes(count) :]

    def set_row(number: int, member: str, value: int) -> bytes:
        def change(rows: Any) -> Any:
            rows[member][number] = value
            return rows

        return rows_changed(change)

    word = (2**32 - 1).to_bytes(4, "little")
    cases = {
        "empty": (b"", "bad_index"),
        "cut in the header": (good[:63], "bad_index"),
        "cut in the index": (good[: index_bytes(count) - 1], "bad_index"),
        "another magic": (poked(0, b"\x92"), "bad_index"),
        "a newer format": (poked(8, b"\2\0"), "newer_format"),
        "format 0": (poked(8, b"\0\0"), "bad_index"),
        "a flag": (poked(10, b"\1\0"), "bad_index"),
        "a reserved byte": (poked(63, b"\1"), "bad_index"),
        "no rows": (poked(12, bytes(4)), "bad_index"),
        "2**32 - 1 rows": (poked(12, word), "bad_index"),
        "another body size": (poked(40, b"\0"), "bad_index"),
        "an array that is not there": (set_row(-1, "array", len(table.arrays)), "bad_index"),
        "a chunk that is not there": (set_row(-1, "chunk", 1000), "bad_index"),
        "length 0": (set_row(0, "length", 0), "bad_index"),
        "a length that is no multiple of 4": (set_row(0, "length", 23), "bad_index"),
        "count 0": (set_row(0, "count", 0), "bad_index"),
        "a count above the chunk": (set_row(0, "count", 1 << 19), "bad_index"),
        "an encoding that is not there": (set_row(0, "encoding", 2), "bad_index"),
        "raw with the length of runs": (set_row(0, "encoding", 1), "bad_index"),
        "rows out of order": (rows_changed(lambda rows: rows[::-1]), "bad_index"),
        "a chunk twice": (rows_changed(lambda rows: rows[[0, 0, *range(2, count)]]), "bad_index"),
    }
    text = table.to_bytes().decode("latin-1")
    return [
        {"name": name, "table": text, "pack": data.hex(), "code": code}
        for name, (data, code) in cases.items()
    ]


def vectors() -> object:
    """Table and pack -> rows with the offset of each patch; or an error code."""
    dense, slabs = dense_model(), slab_model()
    good = [
        _good("every chunk of a dense model", dense, pack_of(dense)),
        _good("every chunk, in slab order", slabs, pack_of(slabs)),
        _good("every third chunk", slabs, pack_of(slabs, every=3)),
    ]
    return {"ok": good, "err": _bad(slabs)}
