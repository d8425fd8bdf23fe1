"""SPEC.md and the product say the same: requirements, errors, limits, schemas and vectors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from deltastore import errors
from deltastore.format import limits
from deltastore.stores.base import MAX_KEY_LENGTH, MAX_SEGMENT_LENGTH
from deltastore.validate.checks import CHECKS
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
    named = {name: getattr(errors, name) for name in errors.__all__ if name not in ("RuleError", "CODES")}
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


def refusals() -> Iterator[tuple[str, ast.Call]]:
    """Every place that refuses stored bytes."""
    for path, tree in sources("deltastore", "kernels"):
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            if node.func.id in ("CorruptError", "UnsupportedError", "PatchError", "RuleError"):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def test_whoever_refuses_stored_bytes_says_which_requirement_they_break() -> None:
    calls = dict(refusals())
    assert len(calls) > 60
    silent = [
        place
        for place, call in calls.items()
        if len(call.args) < {"PatchError": 3, "RuleError": 2}.get(ast.unparse(call.func), 99)
        and not any(keyword.arg == "rule" for keyword in call.keywords)
    ]
    assert silent == []


def test_every_rule_that_the_product_names_is_a_check() -> None:
    named = {
        (str(path.relative_to(ROOT)), node.value)
        for path, tree in sources("deltastore", "kernels")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and IDENTIFIER.fullmatch(node.value)
    }
    assert len(named) > 60
    assert {(path, rule) for path, rule in named if rule not in CHECKS} == set()


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
    assert limits.TABLE_BYTES == limits.INVENTORY_BYTES == limits.SUMS_BYTES
    assert limits.MAX_INTEGER == 2**53 - 1
    pack = f"{binary(limits.PACK_BYTES)}; {power(limits.ROWS_PER_PACK)}; {limits.PACKS_PER_VERSION}"
    anchor = (limits.INVENTORY_OBJECTS, limits.OBJECT_BYTES, limits.SHARD_PLACES)
    tensors = f"{power(limits.TENSORS)}; {limits.MAX_RANK}; {limits.NAME_BYTES} bytes"
    expected = {
        "integer in a JSON object": "2^53 − 1",
        "nesting of a JSON object": str(limits.MAX_DEPTH),
        "record": binary(limits.RECORD_BYTES),
        "tensor table, inventory, sums of an anchor, `zarr.json`": f"{binary(limits.TABLE_BYTES)} each",
        "objects of an anchor; size of one; places of a shard": (
            f"{power(anchor[0])}; {binary(anchor[1])}; {power(anchor[2])}"
        ),
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
        "name of a launch; reason of an ending": f"{limits.RUN_TEXT}; {limits.REASON_TEXT} characters",
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


@pytest.mark.parametrize("name", FILES)
def test_the_vectors_are_those_of_the_product(name: str) -> None:
    assert (ROOT / "spec" / "vectors" / name).read_text(encoding="ascii") == vector_text(name)


def test_there_are_no_other_vectors() -> None:
    assert {path.name for path in (ROOT / "spec" / "vectors").glob("*.json")} == set(FILES)
