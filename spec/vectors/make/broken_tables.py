"""Stores whose table is broken: SPEC section 7."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from spec.vectors.make.breaking import Broken
from spec.vectors.make.objects import Objects, change_record, sealed

Fields = dict[str, Any]
Harm = Callable[[Objects], str]


def table_key(objects: Objects) -> str:
    """The key of the only table."""
    (key,) = (key for key in objects if key.startswith("tables/"))
    return key


def _renamed(change: Callable[[Fields], object]) -> Harm:
    """Change members of the table; it gets a name of its own, by which the only manifest names it."""

    def harm(objects: Objects) -> str:
        old = table_key(objects)
        fields = json.loads(objects.pop(old))
        change(fields)
        data = sealed(fields)
        name = json.loads(data)["sha256"]
        objects[f"tables/{name}.json"] = data
        change_record(objects, 2, lambda record: record.update(table=name))
        return f"tables/{name}.json"

    return harm


def _bytes(change: Callable[[bytes], bytes]) -> Harm:
    def harm(objects: Objects) -> str:
        key = table_key(objects)
        objects[key] = change(objects[key])
        return key

    return harm


def _another(objects: Objects) -> str:
    fields = json.loads(objects[table_key(objects)])
    fields["arrays"][0]["chunk"] = [1, 2]
    objects[table_key(objects)] = sealed(fields)
    return table_key(objects)


def _lost(objects: Objects) -> str:
    key = table_key(objects)
    del objects[key]
    return key


def _array(number: int, member: str, value: Any) -> Callable[[Fields], object]:
    return lambda fields: fields["arrays"][number].__setitem__(member, value)


def tables() -> Iterator[Broken]:
    """All of them."""
    structure, bad = "structure", "bad_json"
    yield Broken("the table is lost", "lost_object", "DS063", structure, _lost, 0)
    yield Broken("the table ends with a newline", bad, "DS010", structure, _bytes(lambda raw: raw + b"\n"), 0)
    yield Broken(
        "a digit of the table has changed",
        "bad_hash",
        "DS011",
        structure,
        _bytes(lambda raw: raw.replace(b'"slabs":2', b'"slabs":3')),
        0,
    )
    yield Broken("a table that is not of its name", "bad_hash", "DS011", structure, _another, 0)
    yield Broken(
        "a table of a newer format",
        "newer_format",
        "DS012",
        structure,
        _renamed(lambda fields: fields.update(format=2)),
        0,
    )
    yield Broken(
        "a table with a member too many",
        bad,
        "DS013",
        structure,
        _renamed(lambda fields: fields.update(note=1)),
        0,
    )
    cases: dict[str, tuple[str, Callable[[Fields], object]]] = {
        "members in too many boxes": ("DS020", _array(0, "members", [[[0, 1]], [[1, 2]]])),
        "arrays out of order": ("DS021", lambda fields: fields["arrays"].reverse()),
        "an array in two": ("DS022", lambda fields: fields["arrays"].insert(0, fields["arrays"][0])),
        "a table of an empty name": ("DS023", lambda fields: fields.update(arrays=[_empty(fields)], slabs=0)),
        "a chunk of too many elements": ("DS024", _array(2, "chunk", [1, 2**20, 2])),
        "a slab axis that is not there": ("DS025", _array(2, "slab", {"by": "axis", "of": 3, "count": 0})),
    }
    for name, (check, change) in cases.items():
        yield Broken(name, bad, check, structure, _renamed(change), 0)


def _empty(fields: Fields) -> Fields:
    found: Fields = {**fields["arrays"][3], "pattern": ""}
    return found
