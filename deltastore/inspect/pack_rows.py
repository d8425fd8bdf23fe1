"""Index rows with the names that the table gives them, as far as they make sense."""

from __future__ import annotations

from typing import Any

import numpy as np

from deltastore.errors import InputError
from deltastore.format.digest import digest_text
from deltastore.format.table import Array, TensorTable
from deltastore.kernels.rows import ROW, chunks_of

__all__ = ["array_numbers", "array_of", "row_facts"]


def array_of(table: TensorTable | None, row: Any) -> Array | None:
    """The array of an index row, where there is one that has its chunk."""
    number, chunk = int(row["array"]), int(row["chunk"])
    if table is None or number >= len(table.arrays):
        return None
    array = table.arrays[number]
    return array if chunk < len(array.grid) else None


def array_numbers(table: TensorTable | None, text: str) -> list[int]:
    """The arrays that a number, pattern or tensor's name means; ``InputError("unknown_tensor")``."""
    if text.isascii() and text.isdigit():
        return [int(text)]
    arrays = () if table is None else table.arrays
    found = [number for number, array in enumerate(arrays) if text in (array.pattern, *array.names)]
    if not found:
        message = f"no array has the pattern {text!r:.200}, or a tensor of that name; give its number"
        raise InputError("unknown_tensor", message, where=text)
    return found


def row_facts(table: TensorTable | None, row: Any, number: int, start: int) -> dict[str, Any]:
    """Row ``number``, whose patch starts at byte ``start`` of its pack; with the table, what it patches."""
    facts: dict[str, Any] = {
        "row": number,
        "array": int(row["array"]),
        "chunk": int(row["chunk"]),
        "offset": start,
        "length": int(row["length"]),
        "count": int(row["count"]),
        "encoding": {0: "runs", 1: "raw"}.get(int(row["encoding"]), int(row["encoding"])),
        "difference": digest_text(int(row["difference"])),
        "check": bytes(row["check"]).hex(),
    }
    array = array_of(table, row)
    if array is None or table is None:
        return facts
    box = array.grid.box(int(row["chunk"]))
    names = array.names[box.start[0]], array.names[box.start[0] + box.size[0] - 1]
    return {
        **facts,
        "pattern": array.pattern,
        "slab": int(table.slabs_of(chunks_of(np.array([row], ROW)))[0]),
        "tensors": list(dict.fromkeys(names)),
        "start": list(box.start[1:]),
        "size": list(box.size[1:]),
        "elements": box.elements,
    }
