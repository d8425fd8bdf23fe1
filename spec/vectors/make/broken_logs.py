"""Stores whose log is broken: SPEC sections 5, 11 and 12.

Slots of the base: 0 birth, 1 epoch 1, 2 anchor 0, 3 delta 1, 4 delta 2, 5 label, 6 epoch 2 that resumes 0,
7 delta 5, 8 epoch 3 that resumes nothing, 9 anchor 6, 10 delta 9.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from spec.vectors.make.breaking import Broken
from spec.vectors.make.objects import Objects, append, change_record, cut, rechain, record_key, sealed

Harm = Callable[[Objects], str]


def _bytes(slot: int, change: Callable[[bytes], bytes]) -> Harm:
    """Change the bytes of a record."""

    def harm(objects: Objects) -> str:
        key = record_key(slot)
        changed = change(objects[key])
        if changed == objects[key]:
            raise ValueError(f"nothing of {key} changed")
        objects[key] = changed
        return key

    return harm


def _members(slot: int, **members: Any) -> Harm:
    """Change members of a record, seal it again, and let the log end with it."""

    def harm(objects: Objects) -> str:
        change_record(objects, slot, lambda fields: fields.update(members))
        return record_key(slot)

    return harm


def _and_the_next(slot: int, *, follows: bool, **members: Any) -> Harm:
    """Change members of a record, and let the log end with the one after it, which follows or does not."""

    def harm(objects: Objects) -> str:
        after = objects[record_key(slot + 1)]
        change_record(objects, slot, lambda fields: fields.update(members))
        objects[record_key(slot + 1)] = after
        if follows:
            rechain(objects, slot + 1)
        return record_key(slot + 1)

    return harm


def _said(slot: int, **members: Any) -> Harm:
    """Change what a manifest says in its statistics."""

    def harm(objects: Objects) -> str:
        change_record(objects, slot, lambda fields: fields["statistics"].update(members))
        return record_key(slot)

    return harm


def _appended(**members: Any) -> Harm:
    return lambda objects: record_key(append(objects, **members))


def _lost(slot: int) -> Harm:
    def harm(objects: Objects) -> str:
        del objects[record_key(slot)]
        return record_key(slot)

    return harm


def _without(slot: int, **members: Any) -> Harm:
    """Take a record out, let those behind it move up, and change members of the first of them."""

    def harm(objects: Objects) -> str:
        last = max(int(key[4:24]) for key in objects if key.startswith("log/"))
        for at in range(slot, last):
            objects[record_key(at)] = objects[record_key(at + 1)]
        del objects[record_key(last)]
        cut(objects, slot + 1)
        objects[record_key(slot)] = sealed(json.loads(objects[record_key(slot)]) | members)
        rechain(objects, slot)
        return record_key(slot)

    return harm


def _swapped(objects: Objects) -> str:
    one, two = record_key(3), record_key(4)
    cut(objects, 5)
    objects[one], objects[two] = objects[two], objects[one]
    return one


def _replayed(objects: Objects) -> str:
    objects[record_key(11)] = objects[record_key(7)]
    return record_key(11)


def _replayed_anew(objects: Objects) -> str:
    objects[record_key(11)] = sealed(json.loads(objects[record_key(7)]) | {"slot": 11})
    return record_key(11)


def _another_birth(objects: Objects) -> str:
    fields = json.loads(objects[record_key(1)]) | {"slot": 0, "parent": None}
    objects[record_key(0)] = sealed(fields)
    cut(objects, 3)
    rechain(objects, 1)
    return record_key(0)


def logs() -> Iterator[Broken]:
    """All of them."""
    structure = "structure"
    yield Broken("a record is not JSON", "bad_json", "DS010", structure, _bytes(3, lambda raw: b"{" + raw), 1)
    yield Broken(
        "a record ends with a newline", "bad_json", "DS010", structure, _bytes(3, lambda raw: raw + b"\n"), 1
    )
    yield Broken(
        "a digit of a record has changed",
        "bad_hash",
        "DS011",
        structure,
        _bytes(3, lambda raw: raw.replace(b'"time":1', b'"time":2')),
        1,
    )
    yield Broken(
        "the tip is of a newer format", "newer_format", "DS012", structure, _members(10, format=2), 9
    )
    yield Broken("a record has a member too many", "bad_json", "DS013", structure, _members(3, note="x"), 1)
    yield Broken("slot 0 is no birth", "bad_chain", "DS050", structure, _another_birth, 0)
    yield Broken("a second birth", "bad_chain", "DS050", structure, _appended(kind="birth", stream="6" * 32))
    yield Broken(
        "a record of an unknown kind that may not be skipped",
        "unknown_kind",
        "DS052",
        structure,
        _members(5, ignorable=False),
        2,
    )
    yield Broken(
        "a pipe in the next slot",
        "bad_length",
        "DS063",
        structure,
        lambda _: record_key(11),
        pipes=(record_key(11),),
    )
    yield Broken(
        "a link to nothing in the next slot",
        "bad_key",
        "DS001",
        structure,
        lambda _: record_key(11),
        links={record_key(11): "elsewhere"},
    )
    yield from _chains()
    yield from _epochs()
    yield from _statistics()


def _chains() -> Iterator[Broken]:
    structure = "structure"
    yield Broken(
        "the log forks: a record is not the parent of the next",
        "bad_chain",
        "DS051",
        structure,
        _and_the_next(3, follows=False, time=1),
        1,
    )
    yield Broken(
        "a record names another parent", "bad_chain", "DS051", structure, _members(4, parent="0" * 64), 2
    )
    yield Broken("a record names no parent", "bad_json", "DS051", structure, _members(4, parent=None), 2)
    yield Broken("two records have changed places", "bad_chain", "DS051", structure, _swapped, 1)
    yield Broken("a record is replayed at the end", "bad_chain", "DS051", structure, _replayed)
    yield Broken("a record is replayed under a new number", "bad_chain", "DS051", structure, _replayed_anew)
    yield Broken(
        "a skipped record names another parent",
        "bad_chain",
        "DS051",
        structure,
        _members(5, parent="0" * 64),
        2,
    )
    yield Broken("a record is lost", "lost_object", "DS063", structure, _lost(5))
    yield Broken("the birth is lost", "lost_object", "DS063", structure, _lost(0))
    yield Broken(
        "a record is too large", "too_large", "DS100", structure, _bytes(10, lambda _: bytes(2**22 + 1)), 9
    )


def _epochs() -> Iterator[Broken]:
    structure = "structure"
    yield Broken("a birth of the first epoch", "bad_chain", "DS053", structure, _members(0, epoch=1))
    yield Broken("an epoch is left out", "bad_chain", "DS053", structure, _members(6, epoch=3))
    yield Broken("an epoch twice", "bad_chain", "DS053", structure, _members(8, epoch=2))
    yield Broken("a version of an older epoch", "bad_chain", "DS053", structure, _members(7, epoch=1))
    yield Broken("a skipped record of a later epoch", "bad_chain", "DS053", structure, _members(5, epoch=2))
    yield Broken(
        "an epoch resumes what is not there", "bad_chain", "DS054", structure, _members(6, resumes=3)
    )
    yield Broken("a version again", "bad_chain", "DS054", structure, _members(7, version=2))
    yield Broken("a version below the one before", "bad_chain", "DS054", structure, _members(7, version=1))
    yield Broken("a base that the epoch has left", "bad_chain", "DS055", structure, _members(4, base=0))
    yield Broken("a base that is not there", "bad_chain", "DS055", structure, _members(10, base=7))
    yield Broken("a base of another branch", "bad_chain", "DS055", structure, _members(10, base=5))
    yield Broken(
        "a delta after an epoch that resumes nothing",
        "bad_chain",
        "DS055",
        structure,
        _and_the_next(6, follows=True, resumes=None),
    )
    yield Broken("a version before any epoch", "bad_chain", "DS055", structure, _without(1, epoch=0))
    yield Broken(
        "a base that is not below its version", "bad_json", "DS060", structure, _members(10, base=9), 9
    )
    yield Broken(
        "another table than that of the base", "bad_chain", "DS060", structure, _members(10, table="0" * 64)
    )


def _certificate(**members: int) -> dict[str, int]:
    return {"inverted": 2, "uncertain": 0, "blocks": 1, "settled": 0, "unexplained": 0, **members}


def _statistics() -> Iterator[Broken]:
    structure = "structure"
    yield Broken("another number of elements", "bad_json", "DS064", structure, _said(4, elements=7))
    yield Broken(
        "another number of elements in an anchor", "bad_json", "DS064", structure, _said(9, elements=7)
    )
    yield Broken("other bytes of packs", "bad_json", "DS064", structure, _said(7, bytes=7))
    yield Broken("bytes of packs where there are none", "bad_json", "DS064", structure, _said(4, bytes=1))
    yield Broken(
        "changed ones of an anchor that are not all", "bad_json", "DS064", structure, _said(9, changed=7)
    )
    yield Broken(
        "more uncertain elements than inverted ones",
        "bad_json",
        "DS064",
        structure,
        _said(7, certificate=_certificate(uncertain=3)),
    )
    yield Broken(
        "more settled blocks than there are",
        "bad_json",
        "DS064",
        structure,
        _said(7, certificate=_certificate(settled=2)),
    )
    yield Broken("other bytes of an anchor", "bad_json", "DS064", structure, _said(9, bytes=7))
    yield Broken("more changed than written", "bad_json", "DS064", structure, _said(7, changed=2))
    yield Broken("fewer changed than there are", "bad_json", "DS065", "deep", _said(7, changed=0))
