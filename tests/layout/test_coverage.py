"""Each element by exactly one writer: splits are accepted, and what two hold, or nobody, is named."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deltastore.errors import InputError
from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec, TensorTable
from deltastore.layout.coverage import OwnedBox, check_coverage, merged_members
from deltastore.layout.cutting import plain_table

from .partitions import STYLES, Split, split_flat, split_model

Shapes = dict[str, tuple[int, ...]]
Claims = list[list[OwnedBox]]

seeds = st.integers(0, 1 << 30)
extents = st.integers(0, 5)
shapes = st.lists(extents, max_size=4).map(tuple)
models = st.lists(shapes, min_size=1, max_size=3).map(
    lambda found: {
        **{f"layers.{layer}.of.{number}": shape for number, shape in enumerate(found) for layer in range(3)},
        "norm": found[0],
    }
)
styles = st.sampled_from([*STYLES, "any"])


class _Shaped:
    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


def table_of(model: Shapes) -> TensorTable:
    return plain_table(TensorSpec(name, shape, DTYPES["BF16"]) for name, shape in model.items())


def owned(table: TensorTable, split: Split, *, merged: bool = True) -> Claims:
    """What each rank claims; boxes of no elements are not claimed."""
    claims: Claims = []
    for held in split:
        mine = []
        for name, boxes in held.items():
            array, member = table.places[name]
            mine += [
                OwnedBox(array, (member, *start), (1, *size)) for start, size in boxes if math.prod(size)
            ]
        claims.append(merged_members(mine) if merged else mine)
    return claims


def check(table: TensorTable, claims: Claims) -> None:
    check_coverage(table, [(f"rank {rank}", boxes) for rank, boxes in enumerate(claims)])


def times(table: TensorTable, claims: Claims) -> list[np.ndarray[Any, Any]]:
    """How often each element of each array is claimed, counted the slow way."""
    counts = [np.zeros(array.grid.extent, int) for array in table.arrays]
    for boxes in claims:
        for box in boxes:
            counts[box.array][tuple(slice(a, a + n) for a, n in zip(box.start, box.size, strict=True))] += 1
    return counts


def refused(table: TensorTable, claims: Claims) -> tuple[set[int], list[int]]:
    """How often the elements that the refusal names are claimed, and the ranks that it names."""
    with pytest.raises(InputError) as refusal:
        check(table, claims)
    assert refusal.value.code == "bad_argument"
    found = re.match(
        r"elements \[(.*?)\] of tensor '(.*?)'(?: and \d+ more like it)? are held by ", str(refusal.value)
    )
    assert found is not None
    assert refusal.value.where == found[2]
    array, member = table.places[found[2]]
    box = [tuple(map(int, part.split(":"))) for part in found[1].split(", ") if part]
    region = times(table, claims)[array][member][tuple(slice(low, high) for low, high in box)]
    assert region.size
    said = [int(rank) for rank in re.findall(r"rank (\d+)", str(refusal.value))]
    holders = [
        rank for rank, boxes in enumerate(claims) for one in boxes if _reaches(one, array, member, box)
    ]
    assert sorted(said) == sorted(holders)[: len(said)]
    return set(region.ravel().tolist()), said


def _reaches(one: OwnedBox, array: int, member: int, box: list[tuple[int, ...]]) -> bool:
    inside = (
        [
            first < high and low < first + length
            for (low, high), first, length in zip(
                [(member, member + 1), *box], one.start, one.size, strict=True
            )
        ]
        if one.array == array
        else [False]
    )
    return all(inside)


def drawn(model: Shapes, ranks: int, style: str, seed: int) -> tuple[TensorTable, Split]:
    random = np.random.default_rng(seed)
    return table_of(model), split_model(
        random, {name: _Shaped(shape) for name, shape in model.items()}, ranks, style
    )


@pytest.mark.spec("DS085")
@given(models, st.integers(1, 6), styles, st.booleans(), seeds)
def test_every_exact_split_is_accepted(
    model: Shapes, ranks: int, style: str, merged: bool, seed: int
) -> None:
    table, split = drawn(model, ranks, style, seed)
    claims = owned(table, split, merged=merged)
    assert all((count == 1).all() for count in times(table, claims))
    check(table, claims)


@pytest.mark.spec("DS085")
@given(models, st.integers(1, 6), styles, st.booleans(), seeds, st.sampled_from(["lost", "twice", "moved"]))
def test_a_box_that_is_lost_or_twice_or_moved(
    model: Shapes, ranks: int, style: str, merged: bool, seed: int, what: str
) -> None:
    table, split = drawn(model, ranks, style, seed)
    claims = owned(table, split, merged=merged)
    random = np.random.default_rng(seed + 1)
    holders = [rank for rank, boxes in enumerate(claims) if boxes]
    assume(holders)
    rank = holders[int(random.integers(len(holders)))]
    box = claims[rank].pop(int(random.integers(len(claims[rank]))))
    if what == "lost":
        assert refused(table, claims) == ({0}, [])
    elif what == "twice":
        other = int(random.integers(ranks))
        claims[rank].append(box)
        claims[other].append(box)
        counts, said = refused(table, claims)
        assert counts == {2}
        assert set(said) == {rank, other}
    else:
        moved = _moved(table, box, random)
        assume(moved is not None)
        assert moved is not None
        claims[rank].append(moved)
        counts, said = refused(table, claims)
        assert (counts, said) == ({0}, []) or (counts == {2} and rank in said)


def _moved(table: TensorTable, box: OwnedBox, random: np.random.Generator) -> OwnedBox | None:
    """The box one step further along an axis, where there is room."""
    extent = table.arrays[box.array].grid.extent
    steps = [
        (axis, step)
        for axis, (first, length, whole) in enumerate(zip(box.start, box.size, extent, strict=True))
        for step in (-1, 1)
        if first + step >= 0 and first + step + length <= whole
    ]
    if not steps:
        return None
    axis, step = steps[int(random.integers(len(steps)))]
    start = tuple(first + step if at == axis else first for at, first in enumerate(box.start))
    return OwnedBox(box.array, start, box.size)


@given(st.lists(st.integers(1, 4), max_size=3).map(tuple), seeds, st.integers(0, 5))
@settings(max_examples=200)
def test_any_boxes_at_all_against_counting(shape: tuple[int, ...], seed: int, count: int) -> None:
    table = table_of({"layers.0": shape, "layers.1": shape})
    random = np.random.default_rng(seed)
    extent = table.arrays[0].grid.extent
    claims: Claims = [[], [], []]
    for _ in range(count):
        ends = [sorted(random.choice(length + 1, 2, replace=False).tolist()) for length in extent]
        box = OwnedBox(0, tuple(low for low, _ in ends), tuple(high - low for low, high in ends))
        claims[int(random.integers(3))].append(box)
    if (times(table, claims)[0] == 1).all():
        check(table, claims)
    else:
        counts, said = refused(table, claims)
        assert {min(count, 4) for count in counts} == {len(said)}  # it names four at most


@pytest.mark.parametrize(
    "box",
    [
        OwnedBox(1, (0, 0), (1, 4)),
        OwnedBox(-1, (0, 0), (1, 4)),
        OwnedBox(0, (0, 0), (1, 5)),
        OwnedBox(0, (0, 0), (3, 4)),
        OwnedBox(0, (-1, 0), (2, 4)),
        OwnedBox(0, (0, 0), (0, 4)),
        OwnedBox(0, (0,), (1,)),
        OwnedBox(0, (0, 0, 0), (1, 4, 1)),
        OwnedBox(0, (), ()),
    ],
)
def test_a_box_outside_the_model_is_refused_with_its_owner(box: OwnedBox) -> None:
    table = table_of({"layers.0": (4,), "layers.1": (4,)})
    with pytest.raises(InputError, match="rank 1 claims box") as refusal:
        check(table, [[OwnedBox(0, (0, 0), (2, 4))], [box]])
    assert refusal.value.code == "bad_argument"


def test_a_model_of_no_elements_needs_no_owner() -> None:
    check(table_of({"nothing": (0, 5)}), [[], []])
    check(plain_table([]), [[]])
    check(plain_table([]), [])


@given(models, st.integers(1, 4), styles, seeds)
def test_merged_members_are_the_same_elements_in_no_more_boxes(
    model: Shapes, ranks: int, style: str, seed: int
) -> None:
    table, split = drawn(model, ranks, style, seed)
    plain, merged = owned(table, split, merged=False), owned(table, split)
    for before, after in zip(plain, merged, strict=True):
        assert len(after) <= len(before)
        for one, other in zip(times(table, [before]), times(table, [after]), strict=True):
            assert (one == other).all()
        assert after == sorted(after)


def mixture_of_experts(experts: int, layers: int) -> Shapes:
    model: Shapes = {"model.embed_tokens.weight": (151936, 2048), "model.norm.weight": (2048,)}
    for layer in range(layers):
        for part in ("q_proj", "k_proj", "v_proj", "o_proj"):
            model[f"model.layers.{layer}.self_attn.{part}.weight"] = (2048, 2048)
        for expert in range(experts):
            for part in ("up_proj", "gate_proj", "down_proj"):
                model[f"model.layers.{layer}.mlp.experts.{expert}.{part}.weight"] = (768, 2048)
    return model


def even_rows(model: Shapes, ranks: int) -> Split:
    """Rows as FSDP deals them out: as many to each, and the last ranks get less, or none."""
    split: Split = [{} for _ in range(ranks)]
    for name, (rows, *rest) in model.items():
        each = -(-rows // ranks)
        for rank in range(ranks):
            low, high = min(rank * each, rows), min(rank * each + each, rows)
            split[rank][name] = [((low, *(0 for _ in rest)), (high - low, *rest))]
    return split


@pytest.mark.parametrize("split_among", [even_rows, split_flat])
def test_nineteen_thousand_tensors_over_eight_ranks(split_among: Callable[[Shapes, int], Split]) -> None:
    model = mixture_of_experts(128, 48)
    assert len(model) > 18_000
    table = table_of(model)
    claims = owned(table, split_among(model, 8))
    check(table, claims)
    claims[5].pop()
    assert refused_counts(table, claims) == "nobody"


def test_flat_buffers_of_five_hundred_ranks() -> None:
    model = mixture_of_experts(0, 75)
    table = table_of(model)
    claims = owned(table, split_flat(model, 512))
    check(table, claims)
    claims[400].append(claims[399][-1])
    assert refused_counts(table, claims) == "both rank 399 and rank 400"


def refused_counts(table: TensorTable, claims: Claims) -> str:
    """By whom, according to the refusal; models of this size are not counted element by element."""
    with pytest.raises(InputError) as refusal:
        check(table, claims)
    found = re.search(r"are held by (.*?)(: only one may publish them)?$", str(refusal.value))
    assert found is not None
    return found[1]
