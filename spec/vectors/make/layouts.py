"""Layouts, good and bad, and which element of which tensor stands where: SPEC section 21."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from deltastore.format.canonical import canonical_bytes, seal
from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec
from deltastore.layout.drawing import Drawing
from deltastore.layout.layout_object import LayoutObject
from deltastore.layout.pieces import Layout

_BF16, _F32 = DTYPES["BF16"], DTYPES["F32"]


def _engine() -> Layout:
    """Rank 1 of 2: fused rows, experts in slots, a padded vocabulary, an F32 router, a tied head."""
    embedding, norm = TensorSpec("embedding", (5, 4), _BF16), TensorSpec("norm", (4,), _BF16)
    q, k = TensorSpec("layers.0.q", (8, 4), _BF16), TensorSpec("layers.0.k", (2, 4), _BF16)
    experts = [TensorSpec(f"layers.0.experts.{number}", (4, 4), _BF16) for number in range(3)]
    router = TensorSpec("layers.0.router", (3, 4), _BF16)
    drawing = Drawing(
        "an engine, rank 1 of 2",
        [embedding, norm, q, k, router, *experts],
        aliases={"head": "embedding"},
        unheld=("layers.1.",),
    )
    fused = drawing.param("layers.0.qk", (6, 4), _BF16)
    drawing.rows(q, 4, 4, fused, 0)
    drawing.rows(k, 0, 2, fused, 4, replica=1)
    slots = drawing.param("layers.0.experts", (3, 4, 2), _BF16)
    for number, expert in enumerate(experts):
        drawing.place(expert, slots, lo=(2, 0), size=(2, 4), at=(number, 0, 0), axes=(2, 1))
    drawing.whole(router, dtype=_F32, replica=1)
    drawing.whole(norm, replica=1)
    rows = drawing.param("embedding", (3, 4), _BF16)
    drawing.rows(embedding, 3, 2, rows, 0)
    drawing.hole(rows, (2, 0), (1, 4))
    drawing.tie("head", "embedding")
    return drawing.done()


def _trainer() -> Layout:
    """Experts side by side in a matrix whose memory is really one expert after another, each transposed."""
    experts = [TensorSpec(f"experts.{number}", (3, 2), _F32) for number in range(2)]
    drawing = Drawing("a trainer", [*experts, TensorSpec("scale", (), _F32)])
    param = drawing.param("experts", (2, 6), _F32, view=(2, 2, 3))
    for number, expert in enumerate(experts):
        drawing.place(expert, param, at=(number, 0, 0), axes=(2, 1))
    drawing.whole(TensorSpec("scale", (), _F32))
    return drawing.done()


def _memory(layout: Layout) -> dict[str, list[list[Any] | None]]:
    """Of every element of every parameter, row-major: (tensor, row-major index in it), null in a hole."""
    found: dict[str, list[list[Any] | None]] = {}
    for param in sorted(layout.params, key=lambda param: param.name):
        elements: list[list[Any] | None] = [None] * param.elements
        for piece in layout.of_param[param.name]:
            shape = layout.specs[piece.tensor].shape
            base, strides = piece.base(param.form), piece.strides(param.form)
            for index in np.ndindex(piece.size):
                at = base + sum(i * stride for i, stride in zip(index, strides, strict=True))
                place = tuple(low + i for low, i in zip(piece.lo, index, strict=True))
                elements[at] = [piece.tensor, int(np.ravel_multi_index(place, shape)) if shape else 0]
        found[param.name] = elements
    return found


def _bad() -> dict[str, tuple[str, str, str]]:
    good = json.loads(LayoutObject.of(_engine()).to_bytes())

    def put(**members: Any) -> str:
        return canonical_bytes(seal({**good, **members})).decode("latin-1")

    pieces = good["pieces"]
    first = pieces[0]
    return {
        "a hole that is not named": (put(holes=[]), "bad_layout", "DS110"),
        "a piece left out": (put(pieces=pieces[1:]), "bad_layout", "DS110"),
        "a piece twice": (put(pieces=[first, *pieces]), "bad_layout", "DS110"),
        "a piece beyond its tensor": (
            put(pieces=[[*first[:1], [4, 0], *first[2:]], *pieces[1:]]),
            "bad_layout",
            "DS111",
        ),
        "a piece beyond its parameter": (
            put(pieces=[[*first[:4], [2, 0], *first[5:]], *pieces[1:]]),
            "bad_layout",
            "DS111",
        ),
        "one axis twice": (
            put(pieces=[[*first[:5], [1, 1], *first[6:]], *pieces[1:]]),
            "bad_layout",
            "DS111",
        ),
        "a tie to nothing": (put(ties={"head": "gone"}), "bad_layout", "DS111"),
        "an alias of nothing": (put(aliases={"head": "gone"}), "bad_layout", "DS111"),
        "a tie of a parameter": (put(ties={"embedding": "norm"}), "bad_layout", "DS111"),
        "an alias of a tensor of its own": (put(aliases={"norm": "embedding"}), "bad_layout", "DS111"),
        "a parameter twice": (put(params=[*good["params"], good["params"][0]]), "bad_layout", "DS111"),
        "a hole beyond its parameter": (
            put(holes=[*good["holes"], [0, [9, 0], [1, 1]]]),
            "bad_layout",
            "DS111",
        ),
        "a form of another size": (
            put(params=[{**good["params"][0], "view": [5]}, *good["params"][1:]]),
            "bad_layout",
            "DS111",
        ),
        "members that are none": (
            put(tensors=[{**good["tensors"][0], "members": []}, *good["tensors"][1:]]),
            "bad_json",
            "DS013",
        ),
        "an empty range of members": (put(tensors=_emptied(good["tensors"])), "bad_json", "DS013"),
        "a parameter of 17 axes": (
            put(params=[{**good["params"][0], "shape": [1] * 17}, *good["params"][1:]]),
            "bad_json",
            "DS013",
        ),
        "a piece of six numbers": (put(pieces=[first[:6], *pieces[1:]]), "bad_json", "DS013"),
        "F32 tensors narrowed": (
            put(tensors=[{**one, "dtype": "F32"} for one in good["tensors"]]),
            "bad_layout",
            "DS111",
        ),
        "a tensor that there is not": (put(pieces=[[99, *first[1:]], *pieces[1:]]), "bad_json", "DS013"),
        "a parameter that there is not": (
            put(pieces=[[*first[:3], 99, *first[4:]], *pieces[1:]]),
            "bad_json",
            "DS013",
        ),
        "a member too many": (put(rank=1), "bad_json", "DS013"),
        "a newer format": (put(format=2), "newer_format", "DS012"),
        "a changed digit": (
            LayoutObject.of(_engine()).to_bytes().decode("latin-1").replace("rank 1", "rank 0"),
            "bad_hash",
            "DS011",
        ),
    }


def _emptied(stacks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The stacks, one of which has an empty range more."""
    at = next(at for at, one in enumerate(stacks) if one["members"] != [[]])
    box = stacks[at]["members"][0]
    more = {**stacks[at], "members": [*stacks[at]["members"], [[3, 3], *box[1:]]]}
    return [*stacks[:at], more, *stacks[at + 1 :]]


def vectors() -> object:
    """Stored bytes -> what stands where; or an error code."""
    ok = [
        {
            "name": layout.name,
            "text": LayoutObject.of(layout).to_bytes().decode("latin-1"),
            "memory": _memory(layout),
        }
        for layout in (_engine(), _trainer())
    ]
    err = [
        {"name": name, "text": text, "code": code, "check": check}
        for name, (text, code, check) in _bad().items()
    ]
    return {"ok": ok, "err": err}
