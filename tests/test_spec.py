"""SPEC.md and the product say the same: requirements, errors, limits, schemas and vectors."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from deltastore import errors
from deltastore.format import limits
from deltastore.stores.base import MAX_KEY_LENGTH, MAX_SEGMENT_LENGTH
from spec.schema.write import MODELS, schema_text
from spec.vectors.write import FILES, vector_text

ROOT = Path(__file__).resolve().parent.parent
SPEC = (ROOT / "SPEC.md").read_text(encoding="utf-8")
IDENTIFIER = re.compile(r"DS\d{3}")

Json = dict[str, Any]


def section(number: int) -> str:
    """The text of one numbered section."""
    found = re.search(rf"^## {number} .*?(?=^## )", SPEC, flags=re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[0]


def table_rows(text: str) -> list[list[str]]:
    """The cells of every table row in ``text`` but headings and rules."""
    lines = [line.strip().strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in cells] for cells in lines]
    rules = [at for at, cells in enumerate(rows) if set("".join(cells)) <= {"-"}]
    return [cells for at, cells in enumerate(rows) if at not in rules and at + 1 not in rules]


def sources(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def required() -> list[str]:
    """Every requirement's identifier where SPEC.md states it, in bold; its introduction shows one as well."""
    return re.findall(r"\*\*\[(DS\d{3})\]\*\*", SPEC[SPEC.index("\n## 1 ") :])


@cache
def proved() -> dict[str, list[str]]:
    """Identifier -> files with a test that carries it in a marker."""
    found: dict[str, list[str]] = {}
    for path, tree in sources("tests"):
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.spec")):
                continue
            for argument in node.args:
                assert isinstance(argument, ast.Constant), f"{path}: a marker that cannot be read"
                found.setdefault(str(argument.value), []).append(str(path.relative_to(ROOT)))
    return found


def test_every_requirement_has_one_place() -> None:
    assert len(required()) > 50
    assert sorted(set(required())) == sorted(required())
    assert set(IDENTIFIER.findall(SPEC)) == set(required())


def test_every_requirement_is_proved_by_a_test() -> None:
    assert sorted(set(required()) - set(proved())) == []


def test_no_test_proves_what_is_not_required() -> None:
    assert {name: proved()[name] for name in sorted(set(proved()) - set(required()))} == {}


def test_no_file_names_a_requirement_that_is_not_there() -> None:
    for folder in ("deltastore", "kernels", "spec", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            unknown = set(IDENTIFIER.findall(path.read_text(encoding="utf-8"))) - set(required())
            assert unknown == set(), str(path)


def error_classes() -> dict[str, type[errors.DeltastoreError]]:
    """Every class of the tree in deltastore/errors.py by its name."""
    named = {name: getattr(errors, name) for name in errors.__all__ if name != "CODES"}
    assert all(issubclass(kind, errors.DeltastoreError) for kind in named.values())
    return named


def raised() -> dict[str, set[str]]:
    """Code -> classes that the product makes with it: ``X("code", …)``, also from inside a subclass of X."""
    classes = error_classes()
    found: dict[str, set[str]] = {}
    for _, tree in sources("deltastore", "kernels"):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                kind = next((ast.unparse(base) for base in node.bases if ast.unparse(base) in classes), None)
                calls = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
                supers = [call for call in calls if ast.unparse(call.func) == "super().__init__"]
                made = [(kind, call) for call in supers] if kind else []
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in classes:
                made = [(node.func.id, node)]
            else:
                continue
            for name, call in made:
                for code in first_texts(call):
                    found.setdefault(code, set()).add(name)
    return found


def first_texts(call: ast.Call) -> list[str]:
    """What the first argument of a call can be, where that is text or a choice of texts."""
    first = call.args[0] if call.args else None
    choices = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
    return [str(choice.value) for choice in choices if isinstance(choice, ast.Constant)]


def test_the_error_table_is_that_of_the_product() -> None:
    classes = error_classes()
    listed = {code.strip("`"): (int(status), when) for code, status, when in table_rows(section(17))}
    assert {code: when for code, (_, when) in listed.items()} == errors.CODES
    assert list(listed) == list(errors.CODES)
    statuses = {
        code: {classes[name].exit_status for name in names} for code, names in sorted(raised().items())
    }
    assert statuses == {code: {status} for code, (status, _) in sorted(listed.items())}


def binary(number: int) -> str:
    """A size as section 16 writes it."""
    for shift, unit in ((30, "GiB"), (20, "MiB")):
        if number >> shift and number % (1 << shift) == 0:
            return f"{number >> shift} {unit}"
    return str(number)


def power(number: int) -> str:
    """A power of two as section 16 writes it."""
    assert number & (number - 1) == 0
    return f"2^{number.bit_length() - 1}"


def test_the_table_of_limits_is_that_of_the_product() -> None:
    assert limits.TABLE_BYTES == limits.INVENTORY_BYTES
    assert limits.MAX_INTEGER == 2**53 - 1
    pack = f"{binary(limits.PACK_BYTES)}; {power(limits.ROWS_PER_PACK)}; {limits.PACKS_PER_VERSION}"
    anchor = f"{power(limits.INVENTORY_OBJECTS)}; {binary(limits.OBJECT_BYTES)}"
    tensors = f"{power(limits.TENSORS)}; {limits.MAX_RANK}; {limits.NAME_BYTES} bytes"
    expected = {
        "integer in a JSON object": "2^53 − 1",
        "nesting of a JSON object": str(limits.MAX_DEPTH),
        "record": binary(limits.RECORD_BYTES),
        "tensor table, inventory": f"{binary(limits.TABLE_BYTES)} each",
        "objects of an anchor; size of one": anchor,
        "pack; rows of a pack; packs of a version": pack,
        "patch": f"2 × its chunk's elements + {limits.PATCH_SLACK} bytes",
        "elements of a chunk": power(limits.CHUNK_ELEMENTS),
        "chunks of an array": "2^32 − 1",
        "tensors of a table; axes; name": tensors,
        "patterns of a table, each as often as it has members; indexes": (
            f"{power(limits.NAMES_BYTES)} bytes; {limits.INDEXES}"
        ),
        "elements of an array, an extent of 0 counted as 1": "2^53 − 1",
        "slabs": str(limits.SLABS),
        "writers of an epoch; boxes of a claim": f"{limits.WRITERS}; {power(limits.OWNED_BOXES)}",
        "claim; call, join, attempt, vote, ending": (
            f"{binary(limits.TABLE_BYTES)}; {binary(limits.VOTE_BYTES)} each"
        ),
        "name of a run; reason of an ending": f"{limits.RUN_TEXT}; {limits.REASON_TEXT} characters",
        "carried files; size of one": f"{limits.FILE_COUNT}; {binary(limits.FILE_BYTES)}",
        "key; segment of a key": f"{MAX_KEY_LENGTH}; {MAX_SEGMENT_LENGTH} characters",
    }
    assert dict(table_rows(section(16))) == expected


def test_metadata_limits_stand_with_the_manifest() -> None:
    assert f"at most {limits.METADATA_ENTRIES} keys" in section(12)
    assert f"text of at most {limits.METADATA_TEXT} characters" in section(12)


def test_the_format_version_is_that_of_the_product() -> None:
    assert SPEC.startswith(f"# The deltastore format, version {limits.FORMAT}\n")
    assert f"`format` is {limits.FORMAT} everywhere" in section(5)


@pytest.mark.parametrize("kind", MODELS)
def test_the_schemas_are_those_of_the_product(kind: str) -> None:
    assert (ROOT / "spec" / "schema" / f"{kind}.json").read_text(encoding="utf-8") == schema_text(kind)


def test_there_are_no_other_schemas() -> None:
    assert {path.stem for path in (ROOT / "spec" / "schema").glob("*.json")} == set(MODELS)


@pytest.mark.spec("DS013")
@pytest.mark.parametrize("kind", MODELS)
def test_a_schema_admits_no_member_more_and_none_less(kind: str) -> None:
    schema = json.loads(schema_text(kind))
    jsonschema.Draft202012Validator.check_schema(schema)
    for inner in (schema, *schema.get("$defs", {}).values()):
        assert inner["additionalProperties"] is False
        assert sorted(inner["required"]) == sorted(set(inner["properties"]) - {"certificate"})


@pytest.mark.parametrize("name", FILES)
def test_the_vectors_are_those_of_the_product(name: str) -> None:
    assert (ROOT / "spec" / "vectors" / name).read_text(encoding="ascii") == vector_text(name)


def test_there_are_no_other_vectors() -> None:
    assert {path.name for path in (ROOT / "spec" / "vectors").glob("*.json")} == set(FILES)


def problems(text: str) -> list[str]:
    """What the schema of its kind has against an object."""
    value: Json = json.loads(text)
    schema = json.loads((ROOT / "spec" / "schema" / f"{value['kind']}.json").read_text(encoding="utf-8"))
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(value)]


@pytest.mark.spec("DS013")
def test_good_vectors_and_streams_are_of_their_schemas() -> None:
    files = ("record.json", "table.json", "votes.json", "layout.json")
    rows = [row for file in files for row in vectors(file, "ok")]
    texts = [row["text"].encode("latin-1").decode("utf-8") for row in rows]
    for path in sorted((ROOT / "spec" / "vectors" / "streams").rglob("*.json")):
        if path.parent.name in ("log", "tables") or path.name == "inventory.json":
            texts.append(path.read_text(encoding="utf-8"))
    judged = [text for text in texts if json.loads(text)["kind"] in MODELS]
    assert {json.loads(text)["kind"] for text in judged} == set(MODELS)
    for text in judged:
        assert problems(text) == []


@pytest.mark.spec("DS013")
def test_bad_vectors_with_a_member_too_many_or_too_few_are_not() -> None:
    names = ("member too many", "member missing", "as text", "true for an integer", "upper case")
    judged = 0
    for row in [*vectors("record.json", "err"), *vectors("table.json", "err")]:
        if any(name in row["name"] for name in names) and row["code"] == "bad_json":
            judged += 1
            assert problems(row["text"]) != [], row["name"]
    assert judged >= 6


def vectors(name: str, part: str) -> list[Json]:
    """The rows of one part of a vector file."""
    read: list[Json] = json.loads((ROOT / "spec" / "vectors" / name).read_text(encoding="ascii"))[part]
    return read
