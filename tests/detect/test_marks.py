"""Masks, indexes and packed bits: what is marked, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deltastore.detect.marks import PackedBits, chunked, marked
from deltastore.errors import InputError
from deltastore.layout.live_parts import LiveParts
from deltastore.layout.parts import Part
from tests.doubles.models import Tensors, bf16, cut_table, small_model

NAME = "model.embed_tokens.weight"


def held(model: Tensors) -> LiveParts:
    return LiveParts(cut_table(model, 16), model)


def number_of(live: LiveParts, name: str) -> int:
    return next(number for number, part in enumerate(live.parts) if part.name == name)


@given(st.sets(st.integers(0, 95), max_size=20), st.randoms())
def test_all_forms_mark_the_same(places: set[int], random: Any) -> None:
    live = held(small_model())
    shuffled = list(places)
    random.shuffle(shuffled)
    mask = np.zeros((12, 8), np.bool_)
    mask.ravel()[shuffled] = True
    forms = [
        mask,
        torch.from_numpy(mask),
        np.array(shuffled + shuffled, np.int32),
        torch.tensor(shuffled, dtype=torch.int64),
        PackedBits(np.packbits(mask, bitorder="little")),
    ]
    for form in forms:
        assert marked(live, {NAME: form})[number_of(live, NAME)].tolist() == sorted(places)


@given(st.data())
def test_marks_of_a_part_fall_into_its_chunks(data: st.DataObject) -> None:
    """Against the plain walk over every element of the part."""
    model = {"w": bf16(np.arange(10 * 12).reshape(10, 12)), "scale": bf16(7)}
    table = cut_table(model, 16)
    low = (data.draw(st.integers(0, 4)), data.draw(st.integers(0, 5)))
    size = (data.draw(st.integers(1, 5)), data.draw(st.integers(1, 6)))
    inner = tuple(slice(a, a + b) for a, b in zip(low, size, strict=True))
    live = LiveParts(table, {"w": Part(model["w"][inner], (10, 12), low)})
    marks = data.draw(st.sets(st.integers(0, size[0] * size[1] - 1), min_size=1))
    found = chunked(live, 0, np.array(sorted(marks), np.int64))
    array = live.parts[0].box.array
    seen = {}
    for chunk in range(len(table.arrays[array].grid)):
        for part, box in live.under(array, chunk):
            bits = live.parts[part].within(box).ravel()
            wanted = {int(model["w"][inner].ravel()[mark].view(np.uint16)) for mark in marks}
            here = [place for place, one in enumerate(bits.tolist()) if one in wanted]
            if here:
                seen[chunk] = here
    assert {chunk: places.tolist() for chunk, places in found.items()} == seen


def test_a_scalar_is_marked_by_index_0() -> None:
    live = held(small_model())
    scalar = number_of(live, "model.scale")
    assert marked(live, {"model.scale": np.array(True)})[scalar].tolist() == [0]
    assert {chunk: at.tolist() for chunk, at in chunked(live, scalar, np.array([0])).items()} == {0: [0]}
    assert chunked(live, scalar, np.zeros(0, np.int64)) == {}


BAD: list[tuple[str, Any, str]] = [
    ("unknown", np.array([0]), "unknown_tensor"),
    (NAME, np.zeros((8, 12), np.bool_), "bad_argument"),
    (NAME, np.array([96]), "bad_argument"),
    (NAME, np.array([-1]), "bad_argument"),
    (NAME, np.array([0.5]), "bad_argument"),
    (NAME, np.array([[0]]), "bad_argument"),
    (NAME, [3, 4], "bad_argument"),
    (NAME, (np.array([0]), np.array([0])), "bad_argument"),
    (NAME, "0", "bad_argument"),
    (NAME, PackedBits(np.zeros(11, np.uint8)), "bad_argument"),
    (NAME, PackedBits(np.zeros(12, np.int8)), "bad_argument"),
    ("model.steps", PackedBits(np.array([8], np.uint8)), "bad_argument"),
]


@pytest.mark.parametrize(("name", "marks", "code"), BAD)
def test_marks_that_do_not_fit_are_refused(name: str, marks: Any, code: str) -> None:
    with pytest.raises(InputError) as refused:
        marked(held(small_model()), {name: marks})
    assert refused.value.code == code
    assert name in str(refused.value)
