"""The vectors of layouts: by the product, and by the formula of SPEC section 21 over plain JSON."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest

from deltastore.errors import DeltastoreError
from deltastore.layout.layout_object import LayoutObject

VECTORS = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "layout.json").read_text(encoding="ascii")
)
Vector = dict[str, Any]


def names_of(stack: Vector) -> list[str]:
    """The tensors of a stack, in member order."""
    found = []
    for box in stack["members"]:
        for index in itertools.product(*(range(low, high) for low, high in box)):
            numbers = iter(index)
            parts = [str(next(numbers)) if part == "*" else part for part in stack["pattern"].split(".")]
            found.append(".".join(parts) if index else stack["pattern"])
    return found


def memory_by_the_formula(fields: Vector) -> dict[str, list[Any]]:
    """``memory[base + sum of i_d * stride_d] = tensor[lo + i]``, with nothing of the package."""
    tensors = [(name, stack["shape"]) for stack in fields["tensors"] for name in names_of(stack)]
    forms = [param["view"] or param["shape"] for param in fields["params"]]
    memory: list[list[Any]] = [[None] * math.prod(form) for form in forms]
    for number, lo, size, param, at, axes, _ in fields["pieces"]:
        name, shape = tensors[number]
        inner = [math.prod(forms[param][axis + 1 :]) for axis in range(len(forms[param]))]
        base = sum(place * step for place, step in zip(at, inner, strict=True))
        for index in itertools.product(*map(range, size)):
            flat = 0
            for extent, low, i in zip(shape, lo, index, strict=True):
                flat = flat * extent + low + i
            place = base + sum(i * inner[axis] for i, axis in zip(index, axes, strict=True))
            assert memory[param][place] is None
            memory[param][place] = [name, flat]
    return {param["name"]: found for param, found in zip(fields["params"], memory, strict=True)}


@pytest.mark.spec("DS110", "DS111")
@pytest.mark.parametrize("vector", VECTORS["ok"], ids=lambda vector: vector["name"])
def test_good_layouts(vector: Vector) -> None:
    stored = vector["text"].encode("latin-1")
    assert memory_by_the_formula(json.loads(stored)) == vector["memory"]
    value = LayoutObject.from_bytes(stored, "layout")
    assert LayoutObject.of(value.layout()).to_bytes() == stored


@pytest.mark.spec("DS110", "DS111")
@pytest.mark.parametrize("vector", VECTORS["err"], ids=lambda vector: vector["name"])
def test_bad_layouts(vector: Vector) -> None:
    with pytest.raises(DeltastoreError) as caught:
        LayoutObject.from_bytes(vector["text"].encode("latin-1"), "layout").layout()
    assert caught.value.code == vector["code"]
