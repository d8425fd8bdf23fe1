"""Requirements of SPEC.md, the validator's checks and the tests that prove them: none without the others."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from deltastore.validate.checks import CHECKS, Level
from spec import index

TEXT = index.SPEC.read_text(encoding="utf-8")
STATED = index.stated(TEXT)
BODY = index.PROSE.sub("", TEXT[TEXT.index("\n## 1 ") :])


def statements() -> Iterator[str]:
    """Every list item, table row and paragraph of the text, as one line."""
    for paragraph in re.split(r"\n\s*\n", BODY):
        for part in re.split(r"^(?=- |\| |\d\. )", paragraph, flags=re.MULTILINE):
            if part.strip():
                yield " ".join(part.split())


def test_the_text_states_what_is_checked_and_nothing_else() -> None:
    assert sorted(STATED) == sorted(CHECKS)
    assert list(CHECKS) == sorted(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_stands_in_the_section_that_states_it(check: str) -> None:
    assert CHECKS[check].section == STATED[check]


def test_every_check_has_a_test_and_every_test_a_check() -> None:
    assert sorted(index.proved()) == sorted(CHECKS)


def test_every_must_has_an_identifier_and_every_identifier_a_must() -> None:
    for statement in statements():
        known = re.findall(r"\*\*\[(DS\d{3})\]\*\*", statement)
        if re.search(r"\bMUST\b", statement) or known:
            assert len(known) == 1, statement
            assert re.search(r"\bMUST\b", statement), statement


def test_nothing_is_required_in_small_letters() -> None:
    assert [
        one for one in statements() if re.search(r"\b(?:must|shall|required|REQUIRED|SHALL)\b", one)
    ] == []


def test_the_index_is_up_to_date() -> None:
    assert index.with_index(TEXT) == TEXT, "run python -m spec.index"


def test_every_requirement_binds_somebody() -> None:
    bound = {check for checks in index.CLASSES.values() for check in checks}
    assert sorted(bound) == sorted(CHECKS)
    judged = {one for one, check in CHECKS.items() if isinstance(check.judged, Level)}
    assert set(index.CLASSES["validator"]) == judged
    assert set(index.CLASSES["reader"]) < set(index.CLASSES["reader of a part"])
    assert set(index.CLASSES["writer"]) < set(index.CLASSES["one of several writers"])


def slug(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")


def test_links_lead_to_headings() -> None:
    anchors = {slug(heading) for heading in re.findall(r"^#+ (.*)$", TEXT, re.MULTILINE)}
    links = re.findall(r"\]\(#([^)]*)\)", TEXT)
    assert len(links) > 20
    assert sorted(set(links) - anchors) == []
    listed = re.findall(r"\[(?:\d+|[AB]) [^\]]*\]\(#([^)]*)\)", TEXT.partition("\n## 1 ")[0])
    assert listed == [slug(heading) for heading in re.findall(r"^## (.*)$", TEXT, re.MULTILINE)]


def machines() -> list[list[list[str]]]:
    """The tables of states: rows of (state, event, condition, next, action)."""
    tables = re.findall(r"^\| state \| event \|.*?\n\|[-|]+\n(.*?)(?=\n\n)", TEXT, re.DOTALL | re.MULTILINE)
    return [
        [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]
        for table in tables
    ]


SAME = ("the same", "—")


def named(cell: str) -> set[str]:
    """The states of a cell, whatever version they are at."""
    return {re.sub(r"\(.*?\)", "", one).strip() for one in cell.split(",")}


@pytest.mark.parametrize("number", range(4))
def test_no_state_is_left_without_rows(number: int) -> None:
    tables = machines()
    assert len(tables) == 4
    rows = tables[number]
    assert all(len(row) == 5 for row in rows)
    states = {state for row in rows for state in named(row[0])}
    elsewhere = {state for row in tables[0] for state in named(row[0])} if number == 1 else set()
    reached = {state for row in rows for state in named(row[3])} - set(SAME)
    assert sorted(reached - states - elsewhere) == []
    assert len({tuple(row[:3]) for row in rows}) == len(rows)
