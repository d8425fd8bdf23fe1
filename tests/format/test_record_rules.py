"""Every rule of a record, broken alone (SPEC sections 5, 11 and 12)."""

from __future__ import annotations

from typing import Any

import pytest

from deltastore.errors import CorruptError, UnsupportedError
from deltastore.format import limits
from deltastore.format.records import SkippedRecord, parse_record

from .record_fields import HASH, PACK, RECORDS, Fields, Path, paths_of, put, record, stored

LARGEST = limits.MAX_INTEGER
every_kind = pytest.mark.parametrize("kind", RECORDS)
EVERY_MEMBER = [(kind, path) for kind in RECORDS for path in paths_of(RECORDS[kind])]
every_member = pytest.mark.parametrize(("kind", "path"), EVERY_MEMBER, ids=str)


def read(fields: Fields, slot: int | None = None) -> Any:
    return parse_record(stored(fields), fields["slot"] if slot is None else slot)


def refused(fields: Fields, code: str = "bad_json", slot: int | None = None) -> str:
    with pytest.raises(CorruptError) as caught:
        read(fields, slot)
    assert caught.value.code == code
    assert caught.value.where is not None
    assert caught.value.where.startswith("log/")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    return str(caught.value)


@every_kind
def test_the_records_that_the_rules_start_from(kind: str) -> None:
    parsed = read(record(kind))
    assert parsed.kind == kind
    assert parsed.to_bytes() == stored(record(kind))


@pytest.mark.spec("DS013")
@every_member
def test_no_member_may_be_missing(kind: str, path: Path) -> None:
    """Also those for which the product has defaults. A list may have fewer items where its rules allow."""
    broken = put(record(kind), path, ...)
    if path == ("slot",):
        refused(broken, slot=record(kind)["slot"])
    elif path == ("kind",):
        with pytest.raises(UnsupportedError) as caught:
            read(broken)
        assert caught.value.code == "unknown_kind"
    elif path in (("packs", 0), ("files", 0)):
        assert read(broken).kind == kind
    else:
        refused(broken)


@pytest.mark.spec("DS013")
@every_member
def test_no_object_may_have_a_member_too_many(kind: str, path: Path) -> None:
    place: Any = record(kind)
    for step in path:
        place = place[step]
    if isinstance(place, dict) and path != ("metadata",):
        refused(put(record(kind), (*path, "more"), None))
    refused({**record(kind), "more": None})


OTHERS: list[Any] = ["1", "", 1, 0, -1, True, False, None, [], {}, [1], {"a": 1}]
MAY_ALSO_BE: dict[Any, list[Any]] = {
    "resumes": [1, 0, None],
    "writer": ["1", ""],
    "detector": ["1", ""],
    "ignorable": [False],
    "metadata": [{}, {"a": 1}],
    "packs": [[]],
    "files": [[]],
    "name": ["1"],
}


@pytest.mark.spec("DS013")
@every_member
def test_members_of_another_type(kind: str, path: Path) -> None:
    """Nothing is converted: no number in text, no truth for a number, no number for a truth, no null."""
    if path in (("kind",), ("slot",)):
        return
    before: Any = record(kind)
    for step in path:
        before = before[step]
    for other in OTHERS:
        allowed = MAY_ALSO_BE.get(path[-1], []) + ([None] if (kind, *path) == ("birth", "parent") else [])
        number = type(before) is int and type(other) is int
        if not number and not any(other == good and type(other) is type(good) for good in allowed):
            refused(put(record(kind), path, other))


COUNTS = [
    ("birth", ("time",)),
    ("epoch", ("epoch",)),
    ("epoch", ("resumes",)),
    ("anchor", ("version",)),
    ("anchor", ("statistics", "elements")),
    ("anchor", ("statistics", "changed")),
    ("anchor", ("statistics", "bytes")),
    ("delta", ("packs", 0, "count")),
]


@pytest.mark.spec("DS013", "DS100")
@pytest.mark.parametrize(("kind", "path"), COUNTS, ids=str)
def test_counts(kind: str, path: Path) -> None:
    for good in (0, 1, LARGEST):
        read(put(record(kind), path, good))
    refused(put(record(kind), path, -1))


RANGES: list[tuple[str, Path, list[Any], list[Any]]] = [
    ("delta", ("writers",), [1, 2, limits.WRITERS], [0, -1, limits.WRITERS + 1]),
    ("delta", ("packs", 0, "bytes"), [108, limits.PACK_BYTES], [0, 107, limits.PACK_BYTES + 1]),
    ("delta", ("packs", 0, "rows"), [1, 3], [0, 4, limits.ROWS_PER_PACK + 1]),
    ("delta", ("packs", 0, "slabs"), [[0, 0], [limits.SLABS] * 2], [[0], [0, 0, 0], [0, limits.SLABS + 1]]),
    ("anchor", ("anchor", "inventory_bytes"), [1, limits.INVENTORY_BYTES], [0, limits.INVENTORY_BYTES + 1]),
    ("anchor", ("files", 0, "bytes"), [0, limits.FILE_BYTES], [-1, limits.FILE_BYTES + 1]),
    ("epoch", ("writer",), ["", "x" * 200, "ü" * 200], ["x" * 201]),
    ("anchor", ("statistics", "detector"), ["", "x" * 200, "\U0001f600" * 200], ["x" * 201]),
]


@pytest.mark.spec("DS013", "DS100")
@pytest.mark.parametrize(("kind", "path", "good", "bad"), RANGES, ids=str)
def test_ranges(kind: str, path: Path, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        read(put(record(kind), path, value))
    for value in bad:
        refused(put(record(kind), path, value))


def test_an_index_of_the_most_rows_fits_its_pack() -> None:
    rows = limits.ROWS_PER_PACK
    full = {**PACK, "rows": rows, "bytes": 64 + 44 * rows}
    read(put(record("delta"), ("packs", 0), full))
    refused(put(record("delta"), ("packs", 0), {**full, "bytes": 64 + 44 * rows - 1}))


HEXADECIMAL: list[tuple[str, Path, int]] = [
    ("epoch", ("parent",), 64),
    ("epoch", ("nonce",), 32),
    ("birth", ("stream",), 32),
    ("anchor", ("table",), 64),
    ("anchor", ("digest",), 16),
    ("anchor", ("anchor", "attempt"), 32),
    ("anchor", ("anchor", "inventory_sha256"), 64),
    ("anchor", ("files", 0, "sha256"), 64),
    ("delta", ("packs", 0, "sha256"), 64),
    ("delta", ("packs", 0, "index_sha256"), 64),
]


@pytest.mark.parametrize(("kind", "path", "digits"), HEXADECIMAL, ids=str)
def test_hexadecimal_members(kind: str, path: Path, digits: int) -> None:
    """Lower case and of one length: each becomes part of a key or is compared as text."""
    read(put(record(kind), path, "a" * digits))
    climbing = ("../" * digits)[:digits]
    for bad in ("a" * (digits - 1), "a" * (digits + 1), "A" * digits, "a" * (digits - 1) + "g", climbing):
        refused(put(record(kind), path, bad))
    for bad in ("a" * digits + "\n", "\n" + "a" * (digits - 1), "٠" * digits, "a" * (digits - 1) + "\0", ""):
        refused(put(record(kind), path, bad))


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("config.json", True),
        ("_", True),
        ("a" * 200, True),
        ("a" * 201, False),
        ("", False),
        (".hidden", False),
        ("-x", False),
        ("..", False),
        ("a/b", False),
        ("a\\b", False),
        ("../a", False),
        ("a b", False),
        ("ä", False),
        ("a\n", False),
        ("a\0", False),
    ],
)
def test_names_of_carried_files(name: str, good: bool) -> None:
    changed = put(record("anchor"), ("files", 0, "name"), name)
    if good:
        assert read(changed).files[0].name == name
    else:
        refused(changed)


def test_a_carried_file_twice() -> None:
    one = RECORDS["anchor"]["files"][0]
    refused(put(record("anchor"), ("files",), [one, {**one, "bytes": 1}]))
    assert len(read(put(record("anchor"), ("files",), [one, {**one, "name": "x"}])).files) == 2


@pytest.mark.spec("DS051")
@every_kind
def test_the_slot_is_the_slot(kind: str) -> None:
    for slot in (record(kind)["slot"] + 1, 7, LARGEST):
        refused(record(kind), "bad_chain", slot)
    if kind != "birth":
        refused(put(record(kind), ("slot",), 0), slot=0)
        refused(put(record(kind), ("parent",), None))


@pytest.mark.spec("DS050", "DS051")
def test_a_birth_record_stands_in_slot_0_only() -> None:
    refused(put(record("birth"), ("parent",), HASH))
    refused({**record("birth"), "slot": 1, "parent": HASH}, "bad_chain")


@pytest.mark.spec("DS060")
def test_a_base_is_below_its_version() -> None:
    for version, base in ((1, 1), (1, 2), (0, 0)):
        refused({**record("delta"), "version": version, "base": base})
    assert read({**record("delta"), "version": LARGEST, "base": LARGEST - 1}).base == LARGEST - 1


@every_kind
def test_a_known_kind_is_never_ignorable(kind: str) -> None:
    refused(put(record(kind), ("ignorable",), True))


@pytest.mark.spec("DS052")
def test_unknown_kinds() -> None:
    """Skipped where the record says so, after its common members were checked; else the reader stops."""
    skipped = {**record("epoch"), "kind": "label", "ignorable": True, "more": {"x": [1]}}
    parsed = read(skipped)
    assert isinstance(parsed, SkippedRecord)
    assert (parsed.kind, parsed.slot, parsed.parent, parsed.epoch) == ("label", 1, HASH, 1)
    for member in ("parent", "epoch", "nonce", "time", "format"):
        refused(put(skipped, (member,), ...))
        refused(put(skipped, (member,), "x"))
    refused(put(skipped, ("slot",), ...), slot=1)
    refused(skipped, "bad_chain", 2)
    refused(put(skipped, ("kind",), 5))
    refused(put(skipped, ("format",), True))
    for ignorable in (False, None, 1, "true", ...):
        for kind in ("label", "Epoch", "", 5, None, ["epoch"], {"epoch": 1}, ...):
            changed = put(put(skipped, ("ignorable",), ignorable), ("kind",), kind)
            with pytest.raises(UnsupportedError, match="upgrade deltastore") as caught:
                read(changed)
            assert caught.value.code == "unknown_kind"


def test_messages_stay_short_whatever_a_record_says() -> None:
    long = "x\n" * 100_000
    with pytest.raises(UnsupportedError) as caught:
        read(put(record("epoch"), ("kind",), long))
    assert len(str(caught.value)) < 300
    refused(put(record("epoch"), ("writer",), long))
    refused(put(record("anchor"), ("metadata",), {long: 1}))
    refused(put(record("anchor"), ("files", 0, "name"), long))
    refused({**record("epoch"), long: 1})
