"""Tensor tables, good and bad: SPEC section 7."""

from __future__ import annotations

import json
from collections.abc import Callable
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
        _array("experts.*.w", (4, 8), [[[0, 4]]], [1, 4, 8], {"by": "member", "of": 0, "count": 4}),
        _array("norm", (8,), [[]], [1, 8], {"by": "common", "of": 0, "count": 0}),
        _array("proj", (8, 6), [[]], [1, 2, 6], {"by": "axis", "of": 1, "count": 0}),
    ]
    return TensorTable.from_bytes(_sealed({"arrays": arrays, "slabs": 2}), "table")


def _array(pattern: str, shape: tuple[int, ...], members: Any, chunk: list[int], slab: Fields) -> Fields:
    return {
        "pattern": pattern,
        "dtype": "BF16",
        "shape": list(shape),
        "members": members,
        "chunk": chunk,
        "slab": slab,
    }


def _sealed(fields: Fields) -> bytes:
    return canonical_bytes(seal({"format": 1, "kind": "table", **fields}))


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


def _changed(change: Callable[[Fields], None]) -> str:
    fields = json.loads(slab_model().to_bytes())
    change(fields)
    return canonical_bytes(seal(fields)).decode("latin-1")


def _bad() -> list[Fields]:
    def set_array(number: int, member: str, value: Any) -> Callable[[Fields], None]:
        return lambda fields: fields["arrays"][number].__setitem__(member, value)

    cases: dict[str, tuple[Callable[[Fields], None], str]] = {
        "arrays out of order": (lambda f: f["arrays"].reverse(), "bad_json"),
        "an array twice": (lambda f: f["arrays"].insert(0, f["arrays"][0]), "bad_json"),
        "unknown element type": (set_array(1, "dtype", "F4"), "bad_json"),
        "chunk of another rank": (set_array(1, "chunk", [8]), "bad_json"),
        "chunk extent 0": (set_array(1, "chunk", [1, 0]), "bad_json"),
        "chunk too large": (set_array(1, "chunk", [2, 1 << 20]), "bad_json"),
        "no members": (set_array(1, "members", []), "bad_json"),
        "an empty range": (set_array(0, "members", [[[2, 2]]]), "bad_json"),
        "members out of order": (set_array(0, "members", [[[2, 4]], [[0, 2]]]), "bad_json"),
        "members in too many boxes": (set_array(0, "members", [[[0, 2]], [[2, 4]]]), "bad_json"),
        "too many members": (set_array(0, "members", [[[0, 1 << 40]]]), "bad_json"),
        "boxes of two lengths": (set_array(0, "members", [[[0, 1]], [[1, 2], [0, 1]]]), "bad_json"),
        "a pattern that does not take the index": (set_array(0, "pattern", "experts.w"), "bad_json"),
        "an index left in the pattern": (set_array(1, "pattern", "norm.3"), "bad_json"),
        "an empty name": (set_array(1, "pattern", ""), "bad_json"),
        "a slab axis that is not there": (
            set_array(2, "slab", {"by": "axis", "of": 3, "count": 0}),
            "bad_json",
        ),
        "a slab index that is not there": (
            set_array(0, "slab", {"by": "member", "of": 1, "count": 4}),
            "bad_json",
        ),
        "a slab index at the count": (
            set_array(0, "slab", {"by": "member", "of": 0, "count": 3}),
            "bad_json",
        ),
        "slab by member over several members": (set_array(0, "chunk", [2, 4, 8]), "bad_json"),
        "an axis rule with a count": (
            set_array(2, "slab", {"by": "axis", "of": 1, "count": 4}),
            "bad_json",
        ),
        "an array twice, of two element types": (
            lambda f: f["arrays"].append({**f["arrays"][2], "dtype": "F16"}),
            "bad_json",
        ),
        "a slab rule without slabs": (lambda f: f.__setitem__("slabs", 0), "bad_json"),
        "an unknown slab rule": (set_array(1, "slab", {"by": "row", "of": 0, "count": 0}), "bad_json"),
        "a member too many": (lambda f: f.__setitem__("note", "x"), "bad_json"),
        "a member missing": (lambda f: f.pop("slabs"), "bad_json"),
        "an extent as text": (set_array(1, "shape", ["8"]), "bad_json"),
        "a newer format": (lambda f: f.__setitem__("format", 2), "newer_format"),
    }
    rows = [{"name": name, "text": _changed(change), "code": code} for name, (change, code) in cases.items()]
    text = slab_model().to_bytes().decode("latin-1")
    rows.append({"name": "one hash digit changed", "text": _other_digit(text), "code": "bad_hash"})
    rows.append({"name": "a space", "text": text.replace(":", ": ", 1), "code": "bad_json"})
    rows.append({"name": "a trailing newline", "text": text + "\n", "code": "bad_json"})
    rows.append({"name": "a key twice", "text": text.replace("{", '{"arrays":[],', 1), "code": "bad_json"})
    rows.append({"name": "cut short", "text": text[:-1], "code": "bad_json"})
    return rows


def _other_digit(text: str) -> str:
    at = text.index('"sha256":"') + len('"sha256":"')
    return text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :]


def vectors() -> object:
    """Stored text -> tensors, chunk counts and slabs; or an error code."""
    good = [_good("a dense model under the plain grid", dense_model()), _good("slabs", slab_model())]
    return {"ok": good, "err": _bad()}
