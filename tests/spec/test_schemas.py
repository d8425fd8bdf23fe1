"""The JSON Schemas below spec/schema: those of the product, and what passes them and what does not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from spec.conformance.run import every_case
from spec.conformance.stores import STREAMS, Stores
from spec.conformance.vectors import FILES, VECTORS, read
from spec.schema.write import HERE, MODELS, OTHERS, schema_text
from tests.spec.asking import reply_of

Json = dict[str, Any]


@cache
def validator(kind: str, part: str | None = None) -> Any:
    schema = json.loads((HERE / f"{kind}.json").read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator(schema if part is None else schema["$defs"][part])


def problems(value: Any, kind: str, part: str | None = None) -> list[str]:
    """What a schema has against a value."""
    return [error.message[:200] for error in validator(kind, part).iter_errors(value)]


@pytest.mark.parametrize("kind", [*MODELS, *OTHERS])
def test_the_schemas_are_those_of_the_product(kind: str) -> None:
    text = (HERE / f"{kind}.json").read_text(encoding="utf-8")
    assert text == schema_text(kind)
    jsonschema.Draft202012Validator.check_schema(json.loads(text))


def test_there_are_no_other_schemas() -> None:
    assert {path.stem for path in HERE.glob("*.json")} == {*MODELS, *OTHERS}


@pytest.mark.spec("DS013")
@pytest.mark.parametrize("kind", MODELS)
def test_a_schema_admits_no_member_more_and_none_less(kind: str) -> None:
    schema = json.loads(schema_text(kind))
    for inner in (schema, *schema.get("$defs", {}).values()):
        assert inner["additionalProperties"] is False
        assert sorted(inner["required"]) == sorted(set(inner["properties"]) - {"certificate"})


def stored_objects() -> Iterator[Json]:
    """Every sealed object of every good vector and every stream."""
    for file in ("record.json", "table.json", "inventory.json", "votes.json", "layout.json"):
        for row in read(file)["ok"]:
            yield json.loads(row["text"].encode("latin-1"))
    for path in sorted(STREAMS.rglob("*.json")):
        if path.parent == STREAMS or path.name == "zarr.json":
            continue
        yield json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.spec("DS013")
def test_good_objects_are_of_their_schemas() -> None:
    judged = Counter[str]()
    for value in stored_objects():
        if value["kind"] in MODELS:
            judged[value["kind"]] += 1
            assert problems(value, value["kind"]) == []
    assert set(judged) == set(MODELS)


BEYOND = {
    "an ignorable record": "kinds that have no schema",
    "no kind": "it has no schema",
    "a delta that is ignorable": "false for known kinds",
    "and a newline": "a pattern may match before the last newline",
    "with a newline": "a pattern may match before the last newline",
    "backwards": "two members",
    "longer than its pack": "two members",
    "twice": "two members",
    "out of order": "two members",
    "that stands for": "two rules for one name",
    "a base without": "two members",
    "a hash without": "two members",
    "without room": "two members",
    "two and three axes": "two members",
    "an empty range": "two numbers of a range",
    "that are none": "a pattern and its members",
    "that there is not": "a number in a list of another length",
}
"""What JSON Schema does not say, by words of the names of vectors."""


@pytest.mark.spec("DS013")
@pytest.mark.parametrize("file", ["record.json", "table.json", "inventory.json", "votes.json", "layout.json"])
def test_what_breaks_a_schema_breaks_its_file(file: str) -> None:
    judged = 0
    for row in read(file)["err"]:
        if row["check"] == "DS013" and not any(words in row["name"] for words in BEYOND):
            value = json.loads(row["text"].encode("latin-1"))
            kind = {"record.json": value.get("kind"), "votes.json": row.get("kind")}.get(file)
            judged += 1
            assert problems(value, kind or file.removesuffix(".json")) != [], row["name"]
    assert judged >= (1 if file == "layout.json" else 15), judged


@pytest.mark.spec("DS071")
def test_the_metadata_of_anchors() -> None:
    judged = Counter[str]()
    for path in sorted(STREAMS.rglob("zarr.json")):
        kind = "zarr-array" if path.parent.name.startswith("array-") else "zarr-group"
        judged[kind] += 1
        assert problems(json.loads(path.read_bytes()), kind) == []
    assert judged["zarr-group"] >= 9
    assert judged["zarr-array"] >= 40


RELATED: tuple[str, ...] = (
    "of another version",
    "of another table",
    "of another shape",
    "of another data type",
    "whole chunks",
    "of another element type",
    "of another pattern",
    "of other members",
    "not JSON",
    "not the table's",
    "has a fraction",
    "of Zarr 3.0",
    "no byte order",
    "no JSON",
)
"""Metadata that breaks the rules only beside its table and its version, or that is not JSON."""


@pytest.mark.spec("DS071")
def test_metadata_that_no_anchor_has(tmp_path: Path) -> None:
    judged, stores = 0, Stores(tmp_path)
    for row in read("broken.json"):
        alone = row["check"] == "DS071" and row["where"].endswith("zarr.json")
        if alone and not any(words in row["name"] for words in RELATED):
            kind = "zarr-array" if "/array-" in row["where"] else "zarr-group"
            judged += 1
            with stores.edited(row) as path:
                assert problems(json.loads((path / row["where"]).read_bytes()), kind) != [], row["name"]
    assert judged >= 12


def test_vector_files_are_of_their_schema() -> None:
    for file in (*FILES, "broken.json", "edited.json"):
        assert problems(read(file), "vectors", file) == [], file
    for path in STREAMS.glob("*.json"):
        assert problems(json.loads(path.read_bytes()), "vectors", "streams") == [], path
    assert problems([{**read("names.json")[0], "more": 1}], "vectors", "names.json") != []
    assert {path.name for path in VECTORS.glob("*.json")} == set(
        json.loads((HERE / "vectors.json").read_text(encoding="utf-8"))["$defs"]
    ) - {"streams"}


def test_requests_and_replies_are_of_their_schema(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for case in every_case(tmp_path):
        operation = case.request["op"]
        seen[operation] += 1
        if seen[operation] % 10 == 1 and operation not in ("stream", "check"):
            assert problems({"id": 1, **case.request}, "conformance", "request") == []
            for implementation in ("decoder", "product")[operation == "encode" :]:
                reply = {"id": 1, **reply_of(implementation, case.request)}
                assert problems(reply, "conformance", "reply") == []
    for operation in ("stream", "check"):
        request = {
            "id": 1,
            "op": operation,
            "path": "x",
            **({"version": None} if operation == "stream" else {}),
        }
        assert problems(request, "conformance", "request") == []
    assert len(seen) == len(validator("conformance", "request").schema["anyOf"])
    assert problems({"id": 1, "op": "names"}, "conformance", "request") != []
    assert problems({"id": 1, "error": {"code": "no_such_code"}}, "conformance", "reply") != []
