"""Which requirement an error names, where in the object it is, and whose tensors it concerns."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from deltastore.errors import DeltastoreError, PatchError, UnsupportedError
from deltastore.format.canonical import canonical_bytes, seal
from deltastore.format.inventory import Inventory
from deltastore.format.pack import PackIndex
from deltastore.format.records import parse_record
from deltastore.format.table import TensorTable
from deltastore.kernels.rows import REASONS, RULE_OF

from .packing import changes_of, pack_of, problem_of, with_patch, with_row
from .record_fields import HASH, put, record, stored
from .tables import array, table, table_bytes

FILE = {"name": "a", "bytes": 1, "sha256": HASH}
STACK: dict[str, Any] = {"pattern": "a.*", "members": [[[0, 4]]], "chunk": [1, 8]}


def refused(read: Callable[[], object]) -> DeltastoreError:
    """The error, as it is after a way through a pickle."""
    with pytest.raises(DeltastoreError) as caught:
        read()
    again: DeltastoreError = pickle.loads(pickle.dumps(caught.value))
    details = ("code", "where", "rule", "offset", "tensor")
    assert [getattr(again, name) for name in details] == [getattr(caught.value, name) for name in details]
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))
    return again


def objects(*keys: str) -> bytes:
    listed = [{"key": key, "bytes": 1, "sha256": HASH} for key in keys]
    return canonical_bytes(seal({"format": 1, "kind": "inventory", "objects": listed}))


@pytest.mark.spec("DS010", "DS011", "DS012", "DS013")
@pytest.mark.parametrize(
    ("data", "code", "rule"),
    [
        (b"", "bad_json", "DS010"),
        (b"[]", "bad_json", "DS010"),
        (b'{"a":1.5}', "bad_json", "DS010"),
        (objects("a") + b" ", "bad_json", "DS010"),
        (objects("a").replace(b'"bytes":1', b'"bytes":2'), "bad_hash", "DS011"),
        (b'{ "format": 2 }', "newer_format", "DS012"),
        (canonical_bytes(seal({"format": 1, "kind": "inventory"})), "bad_json", "DS013"),
        (objects("b", "a"), "bad_json", "DS013"),
    ],
)
def test_json_objects(data: bytes, code: str, rule: str) -> None:
    error = refused(lambda: Inventory.from_bytes(data, "here"))
    assert (error.code, error.rule, error.where) == (code, rule, "here")


@pytest.mark.parametrize(
    ("arrays", "slabs", "rule"),
    [
        ([array(pattern="a.*", members=[[[1, 2]], [[0, 1]]])], 0, "DS020"),
        ([array(pattern="b"), array(pattern="a")], 0, "DS021"),
        ([array(), array()], 0, "DS022"),
        ([array(pattern="a.0")], 0, "DS022"),
        ([array(pattern="a" * 1025)], 0, "DS023"),
        ([array(shape=[1] * 17, chunk=[1] * 18)], 0, "DS023"),
        ([array(shape=[2**22], chunk=[1, 2**20 + 1])], 0, "DS013"),
        ([array(shape=[2**22, 2], chunk=[1, 2**20, 2])], 0, "DS024"),
        ([array(slab={"by": "axis", "of": 1, "count": 0})], 0, "DS025"),
        ([array(**STACK, slab={"by": "member", "of": 0, "count": 3})], 2, "DS025"),
        ([array(pattern="a.0"), array(dtype="F4")], 0, "DS013"),
        ([array(pattern="a.0"), array(shape=[-1])], 0, "DS013"),
    ],
)
def test_tables(arrays: list[dict[str, Any]], slabs: int, rule: str) -> None:
    """Of the breach of a rule and one of the schema, the schema's comes first wherever it stands."""
    error = refused(lambda: TensorTable.from_bytes(table_bytes(arrays, slabs), "here"))
    assert (error.code, error.rule, error.where) == ("bad_json", rule, "here")


@pytest.mark.parametrize(
    ("kind", "path", "value", "rule"),
    [
        ("delta", ("parent",), None, "DS051"),
        ("delta", ("base",), 1, "DS060"),
        ("delta", ("ignorable",), True, "DS013"),
        ("delta", ("packs", 0, "slabs"), [0, 1, 2], "DS013"),
        ("delta", ("packs", 0, "slabs"), [2, 1], "DS013"),
        ("anchor", ("files",), [{**FILE, "name": f"f{number}"} for number in range(257)], "DS100"),
        ("anchor", ("files",), [FILE, FILE], "DS013"),
        ("anchor", ("files", 0, "name"), "model.SafeTensors", "DS013"),
        ("anchor", ("files", 0, "name"), "model.safetensors.index.json", "DS013"),
        ("anchor", ("metadata",), {f"k{number}": 1 for number in range(65)}, "DS013"),
    ],
)
def test_records(kind: str, path: tuple[Any, ...], value: Any, rule: str) -> None:
    fields = put(record(kind), path, value)
    error = refused(lambda: parse_record(stored(fields), fields["slot"]))
    assert (error.code, error.rule) == ("bad_json", rule)


@pytest.mark.spec("DS050", "DS051", "DS052", "DS100")
@pytest.mark.parametrize(
    ("kind", "slot", "rule"), [("birth", 3, "DS051"), ("unheard", 3, "DS052"), ("delta", 4, "DS051")]
)
def test_records_in_their_slot(kind: str, slot: int, rule: str) -> None:
    fields = {**record("delta"), "kind": "unheard"} if kind == "unheard" else record(kind)
    assert refused(lambda: parse_record(stored(fields), slot)).rule == rule
    assert refused(lambda: parse_record(bytes((4 << 20) + 1), slot)).rule == "DS100"


MADE = table([array(**{**STACK, "chunk": [1, 4]}), array(dtype="U8", shape=[5], chunk=[1, 3])])
GOOD = bytes(pack_of(MADE, changes_of(MADE, np.random.default_rng(1), 1.0), may_be_raw=False).data)
INDEX = PackIndex.parse(GOOD, MADE, "packs/7.pack")


@pytest.mark.spec("DS040", "DS041", "DS042", "DS043")
@pytest.mark.parametrize(
    ("data", "rule", "offset", "tensor"),
    [
        (b"x" + GOOD[1:], "DS040", range(1), None),
        (GOOD[:8] + b"\2" + GOOD[9:], "DS040", range(8, 9), None),
        (GOOD[:50] + b"\2" + GOOD[51:], "DS040", range(8, 64), None),
        (with_row(GOOD, 3, encoding=2), "DS041", range(64 + 44 * 3, 64 + 44 * 4), "a.*"),
        (with_row(GOOD, 3, array=2), "DS041", range(64 + 44 * 3, 64 + 44 * 4), None),
        (with_row(GOOD, 9, count=9), "DS041", range(64 + 44 * 9, 64 + 44 * 10), "norm"),
        (with_row(GOOD, 8, encoding=1, count=3), "DS043", range(64 + 44 * 8, 64 + 44 * 9), "norm"),
        (with_row(GOOD, 5, chunk=4), "DS042", range(64 + 44 * 5, 64 + 44 * 6), "a.*"),
    ],
)
def test_the_index_of_a_pack(data: bytes, rule: str, offset: range, tensor: str | None) -> None:
    error = refused(lambda: PackIndex.parse(data, MADE, "packs/7.pack"))
    assert error.code == ("newer_format" if isinstance(error, UnsupportedError) else "bad_index")
    assert (error.rule, error.tensor, error.where) == (rule, tensor, "packs/7.pack")
    assert error.offset in offset


@pytest.mark.spec("DS031", "DS044")
def test_patches() -> None:
    start, end = INDEX.offsets[8:10].tolist()
    turned = GOOD[:start] + bytes([GOOD[start] ^ 1]) + GOOD[start + 1 :]
    other = with_patch(GOOD, 8, b"\7" + GOOD[start + 1 : end])
    for data, code, rule in ((turned, "bad_hash", "DS044"), (other, "bad_patch", "DS031")):
        problem = problem_of(data, MADE)
        assert problem is not None
        assert (problem.code, problem.rule, problem.offset, problem.tensor) == (code, rule, start, "norm")
    error = refused(lambda: INDEX.body(memoryview(turned), MADE))
    assert (error.code, error.rule, error.offset, error.tensor) == ("bad_hash", "DS044", start, "norm")
    error = refused(lambda: INDEX.check_hash(8, turned[start:end], MADE))
    assert (error.code, error.rule, error.offset, error.tensor) == ("bad_hash", "DS044", start, "norm")


def test_what_kernels_say_of_a_patch() -> None:
    for reason in REASONS[1:]:
        named = INDEX.named(PatchError(1, reason, RULE_OF[reason]), MADE, first=7)
        assert (named.code, named.rule, named.tensor) == ("bad_patch", RULE_OF[reason], "norm")
        assert named.offset == INDEX.offsets[8]
