"""Every rule of a table, broken alone."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from deltastore.errors import CorruptError, UnsupportedError
from deltastore.format.canonical import canonical_bytes, seal
from deltastore.format.limits import SLABS, TENSORS
from deltastore.format.table import TensorTable

from .tables import Fields, array, table, table_bytes

STACK: Fields = {"pattern": "a.*", "members": [[[0, 4]]], "chunk": [1, 8]}
PAIRS: Fields = {"pattern": "a.*.*", "members": [[[0, 2], [0, 2]]], "chunk": [1, 8]}


def slab(by: str, of: int = 0, count: int = 0) -> Fields:
    return {"by": by, "of": of, "count": count}


def refused(data: bytes, code: str = "bad_json") -> str:
    with pytest.raises(CorruptError) as caught:
        TensorTable.from_bytes(data, "tables/x.json")
    assert caught.value.code == code
    assert caught.value.where == "tables/x.json"
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 3000
    return str(caught.value)


def test_the_tables_that_the_rules_start_from() -> None:
    assert table([array(**STACK)]).arrays[0].names == ("a.0", "a.1", "a.2", "a.3")
    assert table([array(**PAIRS)]).arrays[0].names == ("a.0.0", "a.0.1", "a.1.0", "a.1.1")
    assert table([]).arrays == ()


@pytest.mark.spec("DS020")
@pytest.mark.parametrize(
    "members",
    [
        [],
        [[]],
        [[[0, 0]]],
        [[[3, 2]]],
        [[[2, 4]], [[0, 2]]],
        [[[0, 2]], [[2, 4]]],
        [[[0, 2]], [[1, 3]]],
        [[[0, 2]], [[0, 2]]],
        [[[0, 1]], [[0, 1], [0, 1]]],
        [[[0, 1], [0, 1]]],
        [[[0]]],
        [[[0, 1, 2]]],
        [[[-1, 1]]],
        [[[0, "1"]]],
        [[0, 1]],
        [[[10**9, 10**9 + 1]]],
        [[[0, TENSORS + 1]]],
        [[[0, 10**9]]],
    ],
    ids=str,
)
def test_members_that_are_not_those_of_the_procedure(members: Any) -> None:
    if members != [[]]:
        refused(table_bytes([array(**{**STACK, "members": members})]))
    else:
        assert table([array(**{**STACK, "members": members})]).arrays[0].names == ("a.*",)


@pytest.mark.spec("DS020")
@pytest.mark.parametrize(
    "members",
    [
        [[[0, 1], [0, 2]], [[1, 2], [0, 2]]],
        [[[0, 2], [0, 1]], [[0, 2], [1, 2]]],
        [[[0, 2], [0, 1]], [[1, 2], [1, 2]]],
        [[[0, 1], [1, 2]], [[0, 1], [0, 1]]],
        [[[0, 1], [0, 1]], [[0, 1], [1, 2]]],
        [[[0, 2], [0, 2]], [[1, 2], [5, 6]]],
        [[[0, 1], [0, 1]], [[1, 2], [2 * 10**9, 2 * 10**9 + 1]], [[2, 3], [0, 1]]],
    ],
    ids=str,
)
def test_boxes_of_two_indexes(members: Any) -> None:
    refused(table_bytes([array(**{**PAIRS, "members": members})]))


@pytest.mark.spec("DS020")
def test_the_largest_index_of_nine_digits() -> None:
    made = table([array(**{**STACK, "members": [[[10**9 - 1, 10**9]]]})])
    assert made.arrays[0].names == ("a.999999999",)


@pytest.mark.spec("DS021", "DS022")
def test_order_of_arrays() -> None:
    """By pattern, then number of indexes, then type, then shape; none twice."""
    rows = [
        array(pattern="a"),
        array(pattern="a.*", members=[[]], dtype="F32"),
        array(**STACK),
        array(pattern="b", dtype="BF16"),
        array(pattern="é"),
    ]
    assert len(table(rows).arrays) == 5
    for at in range(4):
        refused(table_bytes([*rows[:at], rows[at + 1], rows[at], *rows[at + 2 :]]))
        refused(table_bytes([*rows[: at + 1], *rows[at:]]))
    low, high = array(**{**STACK, "members": [[[0, 1]]]}), array(**{**STACK, "members": [[[1, 2]]]})
    refused(table_bytes([low, high]))
    other_shape = array(**{**STACK, "members": [[[1, 2]]], "shape": [9], "chunk": [1, 9]})
    assert len(table([low, other_shape]).arrays) == 2


@pytest.mark.spec("DS021")
def test_a_tensor_twice() -> None:
    wider = array(**{**STACK, "shape": [9], "chunk": [1, 9]})
    assert "listed twice" in refused(table_bytes([array(**STACK), wider]))


@pytest.mark.spec("DS023")
def test_names_and_patterns() -> None:
    table([array(pattern="a" * 1024)])
    table([array(pattern="é" * 512)])
    table([array(pattern="a." + "*." * 511)])
    for pattern in ("", "a" * 1025, "é" * 513, "a.3", "0", "a.0.b"):
        refused(table_bytes([array(pattern=pattern)]))
    long = "a" * 1015 + ".*"
    table([array(pattern=long, members=[[[0, 10]]], chunk=[1, 8])])
    table([array(pattern="a" * 1020 + ".*", members=[[[0, 100]]], chunk=[1, 8])])
    refused(table_bytes([array(pattern="a" * 1020 + ".*", members=[[[0, 1001]]], chunk=[1, 8])]))
    refused(table_bytes([array(pattern="a.3.*", members=[[[0, 1]]])]))


@pytest.mark.spec("DS023", "DS100")
def test_extents() -> None:
    table([array(shape=[1] * 16, chunk=[1] * 17)])
    refused(table_bytes([array(shape=[1] * 17, chunk=[1] * 18)]))
    refused(table_bytes([array(shape=[2**53 - 1], chunk=[1, 2**20])]))
    table([array(shape=[(2**32 - 1) * 2**20], chunk=[1, 2**20])])
    refused(table_bytes([array(shape=[(2**32 - 1) * 2**20 + 1], chunk=[1, 2**20])]))
    refused(table_bytes([array(shape=[2**27, 2**27], chunk=[1, 2**10, 2**10])]))
    refused(table_bytes([array(shape=[2**53 - 1, 2**53 - 1, 0], chunk=[1, 1, 1, 1])]))
    for shape in ([-1], ["8"], [None], [True], 8):
        refused(table_bytes([array(shape=shape)]))


@pytest.mark.spec("DS024")
def test_chunks() -> None:
    table([array(shape=[2**21], chunk=[1, 2**20])])
    table([array(chunk=[1, 2**20])])
    for chunk in ([1, 2**20 + 1], [2, 2**20], [1, 0], [0, 8], [8], [1, 8, 1], [1, -8], [1, 2**53 - 1], []):
        refused(table_bytes([array(chunk=chunk)]))


@pytest.mark.spec("DS025")
def test_slab_rules() -> None:
    for of in (0, 1):
        table([array(slab=slab("axis", of))], slabs=1)
        refused(table_bytes([array(slab=slab("axis", of))], 0))
    for of in (2, 2**53 - 1):
        refused(table_bytes([array(slab=slab("axis", of))], 1))
    table([array(**STACK, slab=slab("member", 0, 4))], slabs=3)
    table([array(**PAIRS, slab=slab("member", 1, 2))], slabs=3)
    refused(table_bytes([array(**STACK, slab=slab("member", 0, 4))], 0))
    refused(table_bytes([array(**STACK, slab=slab("member", 1, 4))], 3))
    refused(table_bytes([array(**STACK, slab=slab("member", 0, 3))], 3))
    refused(table_bytes([array(**STACK, slab=slab("member", 0, 0))], 3))
    refused(table_bytes([array(slab=slab("member", 0, 4))], 3))
    refused(table_bytes([array(**{**STACK, "chunk": [2, 8]}, slab=slab("member", 0, 4))], 3))


@pytest.mark.spec("DS025")
def test_numbers_that_a_slab_rule_does_not_use_are_zero() -> None:
    for rule in (slab("common", 1), slab("common", 0, 1), slab("axis", 0, 1), slab("axis", 1, 8)):
        refused(table_bytes([array(slab=rule)], 2))


@pytest.mark.spec("DS100")
def test_numbers_of_slabs() -> None:
    table([], slabs=SLABS)
    for slabs in (SLABS + 1, -1, 2**53 - 1):
        refused(table_bytes([], slabs))


@pytest.mark.spec("DS013")
def test_members_of_a_table_are_exactly_those_of_its_schema() -> None:
    """Also those for which the product has defaults, and those whose value another spelling could equal."""
    for member in ("kind", "slabs", "arrays"):
        refused(table_bytes([array()], **{member: ...}))
    for member in array():
        refused(table_bytes([array(**{member: ...})]))
    for member in ("by", "of", "count"):
        rule = slab("common")
        rule.pop(member)
        refused(table_bytes([array(slab=rule)]))
    refused(table_bytes([array()], note=None))
    refused(table_bytes([array(note=None)]))
    refused(table_bytes([array(slab={**slab("common"), "note": 0})]))
    refused(table_bytes([array()], kind="tables"))
    refused(table_bytes([array()], kind=None))
    for version in (True, False, 0, -1, "1", None, [1], ...):
        refused(table_bytes([array()], format=version))
    wrong: list[Any] = [True, "0", None, [0]]
    for slabs in wrong:
        refused(table_bytes([array()], slabs))
    for dtype in ("F4", "bf16", "", None, 16):
        refused(table_bytes([array(dtype=dtype)]))


@pytest.mark.spec("DS012")
def test_a_newer_format_is_told_before_anything_else() -> None:
    sealed = [canonical_bytes(seal(fields)) for fields in ({"format": 2}, {"format": 2, "kind": "sheet"})]
    for data in (*sealed, b'{"format": 2}', b'{"format":1' + b"0" * 30 + b',"x":1.5}'):
        with pytest.raises(UnsupportedError) as caught:
            TensorTable.from_bytes(data, "tables/x.json")
        assert caught.value.code == "newer_format"


@pytest.mark.spec("DS100")
@pytest.mark.parametrize(
    "changes",
    [
        {"pattern": "a.*", "members": [[[0, 1]] * 5000]},
        {"pattern": "a" + ".*" * 511, "members": [[[0, 10**9]] * 511]},
        {"pattern": "a.*", "members": [[[0, TENSORS + 1]]]},
        {"pattern": "a" + ".*" * 511, "members": [[[0, 2]] * 14 + [[0, 1]] * 497]},
        {"pattern": "a" * 1000 + ".*", "members": [[[0, 1 << 19]]]},
        {"pattern": "a" + ".*" * 5000, "members": [[[0, 1]] * 5000]},
        {"shape": [8] * 100_000},
        {"chunk": [1] * 100_000},
    ],
    ids=[
        "more indexes than stars",
        "a huge product",
        "too many members",
        "more than eight indexes",
        "many long names",
        "a long pattern",
        "axes",
        "chunks",
    ],
)
def test_a_table_that_claims_a_lot_is_refused_before_it_is_unfolded(changes: Fields) -> None:
    data = table_bytes([array(**changes)])
    tracemalloc.start()
    try:
        refused(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 200 * len(data) + (1 << 20)
