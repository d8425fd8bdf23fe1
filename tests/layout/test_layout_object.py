"""Layouts as JSON: the same bytes for equal layouts, and nothing unsound comes back."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from deltastore.errors import CorruptError, InputError, UnsupportedError
from deltastore.format.canonical import canonical_bytes, seal
from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec
from deltastore.layout.drawing import Drawing
from deltastore.layout.layout_object import LayoutObject
from deltastore.layout.pieces import Layout
from spec.schema.write import schema_text

BF16, F32 = DTYPES["BF16"], DTYPES["F32"]


def sample() -> Layout:
    tensors = [
        *(
            TensorSpec(f"layers.{layer}.experts.{expert}.w", (6, 4), BF16)
            for layer in range(2)
            for expert in range(3)
        ),
        TensorSpec("norm", (4,), BF16),
        TensorSpec("embedding", (5, 4), BF16),
    ]
    drawing = Drawing("sample rank=1", tensors, aliases={"head": "embedding"}, unheld=("layers.2.",))
    for layer in range(2):
        fused = drawing.param(f"layers.{layer}.w13", (3, 4, 3), BF16, view=(3, 4, 3))
        for expert in range(3):
            drawing.place(
                tensors[layer * 3 + expert], fused, lo=(3, 0), size=(3, 4), at=(expert, 0, 0), axes=(2, 1)
            )
    drawing.whole(tensors[6], "norm.weight", dtype=F32)
    padded = drawing.param("embedding", (8, 4), BF16)
    drawing.place(tensors[7], padded, replica=1)
    drawing.hole(padded, (5, 0), (3, 4))
    drawing.tie("head", "embedding")
    return drawing.done()


def test_there_and_back() -> None:
    written = LayoutObject.of(sample())
    read = LayoutObject.from_bytes(written.to_bytes(), "a layout").layout()
    assert LayoutObject.of(read) == written
    assert set(read.pieces) == set(sample().pieces)
    assert set(read.tensors) == set(sample().tensors)
    assert read.forms == sample().forms
    assert (read.name, read.aliases, read.ties) == (
        "sample rank=1",
        {"head": "embedding"},
        {"head": "embedding"},
    )
    assert read.is_unheld("layers.2.experts.0.w")
    assert not read.is_unheld("layers.20.experts.0.w")


def test_the_order_of_parts_does_not_matter() -> None:
    layout, drawn = sample(), random.Random(3)
    shuffled = replace(
        layout,
        tensors=tuple(drawn.sample(layout.tensors, len(layout.tensors))),
        params=tuple(drawn.sample(layout.params, len(layout.params))),
        pieces=tuple(drawn.sample(layout.pieces, len(layout.pieces))),
    )
    assert LayoutObject.of(shuffled).sha256 == LayoutObject.of(layout).sha256


def test_the_json_is_what_its_schema_says() -> None:
    fields = json.loads(LayoutObject.of(sample()).to_bytes())
    jsonschema.validate(fields, json.loads(schema_text("layout")))
    assert len(fields["tensors"]) == 3
    assert fields["pieces"][0] == [0, [0, 0], [5, 4], 0, [0, 0], [0, 1], 1]


def changed(**members: Any) -> bytes:
    fields = json.loads(LayoutObject.of(sample()).to_bytes())
    return canonical_bytes(seal({**fields, **members}))


def test_numbers_that_name_nothing() -> None:
    for members in (
        {"pieces": [[99, [0], [4], 0, [0], [0], 0]]},
        {"pieces": [[0, [0], [4], 99, [0], [0], 0]]},
        {"holes": [[99, [0], [1]]]},
        {"pieces": [[-1, [0], [4], 0, [0], [0], 0]]},
    ):
        with pytest.raises(CorruptError) as caught:
            LayoutObject.from_bytes(changed(**members), "a layout")
        assert caught.value.code == "bad_json"


def test_more_tensors_than_any_model_has() -> None:
    stack = {"pattern": "a.*.b.*", "dtype": "BF16", "shape": [1], "members": [[[0, 10**9], [0, 10**9]]]}
    with pytest.raises(CorruptError, match=r"more than \d+ tensors"):
        LayoutObject.from_bytes(changed(tensors=[stack]), "a layout")


def test_members_that_their_pattern_does_not_take() -> None:
    for members in ([[[0, 2], [0, 2]]], [], [[[0, 1]], [[0, 1], [0, 1]]]):
        stack = {"pattern": "a.*.b", "dtype": "BF16", "shape": [1], "members": members}
        with pytest.raises(CorruptError, match="does not take"):
            LayoutObject.from_bytes(changed(tensors=[stack]), "a layout")


def test_sound_json_of_an_unsound_layout() -> None:
    pieces = json.loads(LayoutObject.of(sample()).to_bytes())["pieces"]
    with pytest.raises(InputError, match="fed by no tensor") as caught:
        LayoutObject.from_bytes(changed(pieces=pieces[:-1]), "a layout").layout()
    assert caught.value.code == "bad_layout"
    with pytest.raises(InputError, match="fed by both") as caught:
        LayoutObject.from_bytes(changed(pieces=[*pieces, pieces[0]]), "a layout").layout()


def test_a_newer_format_and_damage() -> None:
    data = LayoutObject.of(sample()).to_bytes()
    with pytest.raises(CorruptError):
        LayoutObject.from_bytes(data.replace(b"norm.weight", b"norm.height"), "a layout")
    fields = json.loads(data)
    with pytest.raises(UnsupportedError):
        LayoutObject.from_bytes(canonical_bytes(seal({**fields, "format": 2})), "a layout")


def test_names_of_more_bytes_than_any_table_has() -> None:
    long = "x" * 1000 + ".*"
    stack = {"pattern": long, "dtype": "BF16", "shape": [1], "members": [[[0, 1 << 20]]]}
    with pytest.raises(CorruptError, match=r"more than \d+ bytes of names"):
        LayoutObject.from_bytes(changed(tensors=[stack]), "a layout")
