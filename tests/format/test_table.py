"""Tensor tables: what they say of tensors, chunks and slabs."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltastore.errors import InputError
from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec, TensorTable
from deltastore.layout.cutting import plain_table

from .tables import array, table, tables
from .test_names import naive_boxes

BF16 = DTYPES["BF16"]


@settings(max_examples=200)
@given(made=tables())
def test_a_table_is_its_bytes(made: TensorTable) -> None:
    data = made.to_bytes()
    again = TensorTable.from_bytes(data, "table")
    assert again == made
    assert again.to_bytes() == data


@settings(max_examples=200)
@given(made=tables())
def test_every_tensor_has_one_place(made: TensorTable) -> None:
    specs = list(made.tensors())
    assert [spec.name for spec in specs] == list(made.places)
    assert len(made.places) == len(specs) == sum(one.count for one in made.arrays)
    for spec in specs:
        number, member = made.places[spec.name]
        assert made.arrays[number].names[member] == spec.name
        assert (made.arrays[number].shape, made.arrays[number].element) == (spec.shape, spec.dtype)
    assert made.elements == sum(spec.elements for spec in specs)
    assert made.nbytes == sum(spec.nbytes for spec in specs)


def naive_slab(made: TensorTable, number: int, chunk: int) -> int:
    """SPEC section 7.3 for one chunk."""
    one = made.arrays[number]
    place = one.grid.coordinates(chunk)
    if one.slab.by == "common":
        return 0
    if one.slab.by == "axis":
        return 1 + place[one.slab.of] * made.slabs // one.grid.counts[one.slab.of]
    index = list(one.indexes())[place[0]][one.slab.of]
    return 1 + index * made.slabs // one.slab.count


@settings(max_examples=200)
@given(made=tables())
def test_chunks_in_pack_order(made: TensorTable) -> None:
    expected = [
        (naive_slab(made, number, chunk), number, chunk)
        for number, one in enumerate(made.arrays)
        for chunk in range(len(one.grid))
    ]
    assert list(map(tuple, made.chunk_order().tolist())) == sorted(expected)
    assert all(slab <= made.slabs for slab, _, _ in expected)
    for number, one in enumerate(made.arrays):
        chunks = np.arange(len(one.grid))[::-1]
        slabs = one.slabs(chunks, made.slabs)
        assert slabs.tolist() == [naive_slab(made, number, int(chunk)) for chunk in chunks]


tensor_names = st.lists(
    st.sampled_from(["a", "b", "*", "0", "1", "2", "10", "03", "é", "1\n"]), min_size=1, max_size=3
).map(".".join)


@pytest.mark.spec("DS020", "DS021", "DS022")
@settings(max_examples=300)
@given(
    wanted=st.dictionaries(
        tensor_names,
        st.tuples(st.sampled_from([(2,), (3, 2), ()]), st.sampled_from(["BF16", "F32"])),
        min_size=1,
        max_size=25,
    )
)
def test_stacking_loses_no_tensor_and_joins_all_that_are_alike(
    wanted: dict[str, tuple[tuple[int, ...], str]],
) -> None:
    specs = [TensorSpec(name, shape, DTYPES[dtype]) for name, (shape, dtype) in wanted.items()]
    made = plain_table(specs)
    assert {spec.name: (spec.shape, spec.dtype.name) for spec in made.tensors()} == wanted
    keys = [(one.pattern, len(one.members[0]), one.dtype, one.shape) for one in made.arrays]
    assert keys == sorted(set(keys))
    for one in made.arrays:
        assert [list(box) for box in one.members] == naive_boxes(sorted(one.indexes()))
    assert plain_table(reversed(specs)).sha256 == made.sha256


@pytest.mark.parametrize(
    "spec",
    [
        TensorSpec("", (1,), BF16),
        TensorSpec("a" * 1025, (1,), BF16),
        TensorSpec("ä" * 513, (1,), BF16),
        TensorSpec("a\ud800", (1,), BF16),
        TensorSpec("a", (1,) * 17, BF16),
        TensorSpec("a", (2**27, 2**27), BF16),
        TensorSpec("a", (2**53 - 1, 2**53 - 1, 0), BF16),
    ],
    ids=range(7),
)
def test_a_tensor_that_no_table_can_hold_is_the_callers_error(spec: TensorSpec) -> None:
    with pytest.raises(InputError) as caught:
        plain_table([spec])
    assert caught.value.code == "bad_argument"
    assert "\n" not in str(caught.value)


def test_a_name_given_twice() -> None:
    with pytest.raises(InputError, match="given twice"):
        plain_table([TensorSpec("a.1", (1,), BF16), TensorSpec("a.1", (1,), BF16)])


def test_a_table_above_its_limit_is_refused_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("deltastore.layout.cutting.TABLE_BYTES", 2000)
    plain_table([TensorSpec("a", (1,), BF16)])
    with pytest.raises(InputError, match="at most 2000 are allowed") as caught:
        plain_table([TensorSpec("a" * count, (1,), BF16) for count in range(1, 20)])
    assert caught.value.code == "bad_argument"


def test_tensors_of_rank_16_and_without_elements() -> None:
    """The most axes, no axes, and extents of 0 under every slab rule."""
    made = plain_table([TensorSpec("a", (1, 2) * 8, BF16), TensorSpec("b", (), BF16)])
    assert [len(one.grid) for one in made.arrays] == [1, 1]
    for (by, of), shape in product((("axis", 0), ("axis", 1), ("common", 0)), ([0], [0, 3], [3, 0])):
        rule = {"by": by, "of": of, "count": 0}
        empty = table([array(shape=shape, chunk=[1, *([1] * len(shape))], slab=rule)], slabs=2)
        assert empty.chunk_order().shape == (0, 3)
        assert empty.elements == 0
    assert plain_table([]).chunk_order().shape == (0, 3)


def test_gqa_heads_and_padded_rows_keep_their_own_arrays() -> None:
    """Shapes and types are never joined: unequal heads, an FP32 router, FP8 with its scale."""
    specs = [TensorSpec(f"layers.{i}.k.weight", (64 if i % 2 else 128, 32), BF16) for i in range(4)]
    specs += [TensorSpec(f"layers.{i}.gate.weight", (8, 32), DTYPES["F32"]) for i in range(4)]
    specs += [TensorSpec(f"layers.{i}.w.weight", (8, 8), DTYPES["F8_E4M3"]) for i in range(4)]
    specs += [TensorSpec(f"layers.{i}.w.weight_scale", (1,), DTYPES["F32"]) for i in range(4)]
    made = plain_table(specs)
    assert len(made.arrays) == 5
    assert [one.count for one in made.arrays] == [4, 2, 2, 4, 4]
    assert [one.members for one in made.arrays[1:3]] == [(((1, 2),), ((3, 4),)), (((0, 1),), ((2, 3),))]
