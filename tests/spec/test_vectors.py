"""Every vector and every store below spec/vectors, by the specification's decoder and by the product."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from deltastore.errors import UnsupportedError
from deltastore.stores.base import Store
from deltastore.stores.local import LocalStore
from deltastore.validate import validate
from deltastore.validate.checks import Level
from spec.conformance import vectors
from spec.conformance.case import Case
from spec.conformance.stores import Stores, broken_cases, edited_cases, sound_cases
from spec.conformance.vectors import FILES, VECTORS
from spec.vectors.make.objects import load
from tests.doubles.stores import memory_store
from tests.spec.asking import IMPLEMENTATIONS, problems, reply_of

Vector = dict[str, Any]
STREAMS = VECTORS / "streams"
EACH = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)


@cache
def by_file() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = defaultdict(list)
    for case in vectors.cases():
        found[case.file].append(case)
    return dict(found)


def test_there_are_vectors_in_every_file() -> None:
    assert {path.name for path in VECTORS.glob("*.json")} == {*FILES, "broken.json", "edited.json"}
    assert set(by_file()) == set(FILES)
    assert vectors.read("broken.json")
    for file in FILES:
        content = vectors.read(file)
        assert all(content.values()) if isinstance(content, dict) else content


def test_every_stream_has_its_expectation() -> None:
    directories = {path.name for path in STREAMS.iterdir() if path.is_dir()}
    assert len(directories) >= 6
    assert directories == {path.stem for path in STREAMS.glob("*.json")}


@pytest.mark.spec("DS010", "DS011", "DS012", "DS013", "DS020", "DS021", "DS022", "DS023", "DS024", "DS025")
@pytest.mark.spec("DS030", "DS031", "DS032", "DS033", "DS034", "DS036", "DS040", "DS041", "DS042", "DS043")
@pytest.mark.spec("DS044", "DS050", "DS051", "DS052", "DS060", "DS100", "DS110", "DS111")
@EACH
@pytest.mark.parametrize("file", FILES)
def test_single_objects(implementation: str, file: str) -> None:
    assert problems(implementation, by_file()[file]) == []


@pytest.mark.parametrize("file", sorted(set(FILES) - {"names.json", "digest.json", "layout.json"}))
def test_the_product_always_says_what_is_broken(file: str) -> None:
    for row in vectors.read(file)["err"]:
        request, _ = FILES[file][1](row)
        error = reply_of("product", {"op": FILES[file][0], **request})["error"]
        assert error["code"] == row["code"], row["name"]
        assert error["check"] in row.get("checks", [row["check"]]), row["name"]


def test_the_decoder_always_says_what_is_broken() -> None:
    for file in sorted(set(FILES) - {"names.json", "digest.json"}):
        for row in vectors.read(file)["err"]:
            request, _ = FILES[file][1](row)
            error = reply_of("decoder", {"op": FILES[file][0], **request})["error"]
            assert error["code"] == row["code"], row["name"]
            assert error["check"] in row.get("checks", [row["check"]]), row["name"]


@pytest.mark.spec("DS035")
def test_patches_by_the_writer() -> None:
    assert problems("product", vectors.encodings()) == []


@EACH
def test_streams(implementation: str, tmp_path: Path) -> None:
    assert problems(implementation, sound_cases(Stores(tmp_path))) == []


@EACH
def test_stores_that_are_sound_in_another_way(implementation: str, tmp_path: Path) -> None:
    assert problems(implementation, edited_cases(Stores(tmp_path))) == []


@pytest.mark.spec("DS001", "DS045", "DS046", "DS053", "DS054", "DS055", "DS061", "DS062", "DS063", "DS064")
@pytest.mark.spec("DS065", "DS070", "DS071", "DS072", "DS073", "DS074", "DS093")
def test_broken_stores_by_the_decoder(tmp_path: Path) -> None:
    assert problems("decoder", broken_cases(Stores(tmp_path))) == []


def test_broken_stores_by_readers(tmp_path: Path) -> None:
    reading = (case for case in broken_cases(Stores(tmp_path)) if case.request["op"] == "stream")
    assert problems("product", reading) == []


@pytest.mark.spec("DS001", "DS045", "DS046", "DS053", "DS054", "DS055", "DS061", "DS062", "DS063", "DS064")
@pytest.mark.spec("DS065", "DS070", "DS071", "DS072", "DS073", "DS074", "DS093")
async def test_broken_stores_by_the_validator(tmp_path: Path) -> None:
    """Found at its level and above, whatever else that looks at, and not below."""
    stores, wrong = Stores(tmp_path), []
    for row in vectors.read("broken.json"):
        with stores.edited(row) as path:
            store = await in_memory(path, row)
            for level in (Level.DEEP, Level[row["level"].upper()] - 1):
                expected = (row["code"], row["check"], row["where"]) if level == Level.DEEP else None
                found = await first_problem(store, level) if level else None
                if found != expected:
                    wrong.append((row["name"], level, found))
    assert wrong == []


async def test_what_structure_shows_is_found_without_reading_weights(tmp_path: Path) -> None:
    stores, wrong = Stores(tmp_path), []
    for row in vectors.read("broken.json"):
        if row["level"] == "structure":
            with stores.edited(row) as path:
                found = await first_problem(await in_memory(path, row), Level.STRUCTURE)
            if found != (row["code"], row["check"], row["where"]):
                wrong.append((row["name"], found))
    assert wrong == []


async def in_memory(folder: Path, row: Vector) -> Store:
    """A store in memory; links and pipes are none but in a file system."""
    if any({"link", "pipe"} & edit.keys() for edit in row["edits"]):
        return LocalStore(folder)
    store = memory_store()
    for key, data in load(folder).items():
        await store.put(key, data)
    return store


async def first_problem(store: Store, level: int) -> tuple[str, str | None, str | None] | None:
    """Code, requirement and object of what a validation finds first, or stops at."""
    try:
        problems = (await validate(store, level=Level(level))).problems
    except UnsupportedError as error:
        return error.code, error.rule, error.where
    return (problems[0].code, problems[0].check, problems[0].where) if problems else None


def test_only_what_is_edited_differs(tmp_path: Path) -> None:
    stores = Stores(tmp_path)
    for row in vectors.read("broken.json")[::15]:
        with stores.edited(row) as path:
            assert {edit["key"] for edit in row["edits"]} == set(differing(STREAMS / row["base"], path))


def differing(one: Path, two: Path) -> list[str]:
    """The keys at which two folders differ."""
    keys = {
        path.relative_to(root).as_posix()
        for root in (one, two)
        for path in root.rglob("*")
        if not path.is_dir()
    }
    return [key for key in keys if content(one / key) != content(two / key)]


def content(path: Path) -> bytes | None:
    """The bytes of a file; None where there is none, or a link."""
    return path.read_bytes() if path.is_file() and not path.is_symlink() else None


def test_facts_are_of_every_version() -> None:
    for path in STREAMS.glob("*.json"):
        facts = json.loads(path.read_text(encoding="ascii"))
        assert facts["versions"], path
