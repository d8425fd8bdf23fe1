"""Packs that are not what the manifest says of them."""

from __future__ import annotations

from collections.abc import Callable

from deltastore.format.pack import pack_key
from deltastore.validate import Level

from .against_packs import NEWEST, NOBODY, RANGES, change_entry
from .attack import WRITER, Attack, attack, rewritten
from .resealing import Objects, Rewriting


def _said(
    name: str,
    codes: str,
    rules: str,
    *,
    level: Level = Level.CONTENT,
    passes: frozenset[str] = WRITER,
    **members: object,
) -> Attack:
    def change(rewriting: Rewriting) -> None:
        change_entry(rewriting, **members)

    return attack(f"entry: {name}", rewritten(change), codes, rules, level=level, passes=passes)


def _stored(
    name: str,
    change: Callable[[bytes], bytes | None],
    codes: str,
    rules: str,
    level: Level,
    passes: frozenset[str] = WRITER,
) -> Attack:
    """Other bytes under the name of a pack."""

    def make(objects: Objects) -> Objects:
        rewriting = Rewriting(objects)
        record = rewriting.records[NEWEST]
        key = pack_key(record["version"], record["packs"][0]["sha256"])
        data = change(objects.pop(key))
        return objects if data is None else {**objects, key: data}

    return attack(f"pack: {name}", make, codes, rules, level=level, passes=passes)


def attacks() -> list[Attack]:
    """All of them."""
    return [
        _said("no bytes", "bad_json", "DS013", level=Level.STRUCTURE, passes=NOBODY, bytes=0),
        _said(
            "a byte more than the limit",
            "bad_json",
            "DS013 DS100",
            level=Level.STRUCTURE,
            passes=NOBODY,
            bytes=(1 << 30) + 1,
        ),
        _said("a gibibyte", "bad_length bad_index", "DS061", level=Level.STRUCTURE, bytes=1 << 30),
        _said("fewer bytes", "too_large bad_length bad_index", "DS061", level=Level.STRUCTURE, bytes=300),
        _said(
            "4 million rows of few bytes",
            "bad_json",
            "DS013",
            level=Level.STRUCTURE,
            passes=NOBODY,
            rows=1 << 22,
        ),
        _said("4 million rows", "bad_length", "DS061", level=Level.STRUCTURE, rows=1 << 22, bytes=1 << 30),
        _said("no rows", "bad_json", "DS013", level=Level.STRUCTURE, passes=NOBODY, rows=0),
        _said("another count", "bad_index", "DS061", count=2**53 - 1),
        _said("slabs that fall", "bad_json", "DS013", level=Level.STRUCTURE, passes=NOBODY, slabs=[2, 1]),
        _said("slabs of nobody", "bad_index", "DS061", slabs=[4096, 4096]),
        _said("another index", "bad_hash", "DS061", index_sha256="0" * 64),
        _said("a pack that is not there", "lost_object", "DS063", level=Level.STRUCTURE, sha256="0" * 64),
        _stored("gone", lambda _: None, "lost_object", "DS063", Level.STRUCTURE),
        _stored("empty", lambda _: b"", "bad_length", "DS061", Level.STRUCTURE),
        _stored(
            "a bit flipped at its end",
            lambda data: data[:-1] + bytes([data[-1] ^ 1]),
            "bad_hash",
            "DS061 DS044",
            Level.CONTENT,
        ),
        _stored(
            "a bit flipped in its index",
            lambda data: data[:70] + bytes([data[70] ^ 1]) + data[71:],
            "bad_hash",
            "DS061",
            Level.CONTENT,
        ),
        _stored(
            "longer", lambda data: data + bytes(1000), "too_large", "DS061", Level.STRUCTURE, RANGES | WRITER
        ),
        _stored("shorter", lambda data: data[:-1], "bad_length bad_hash", "DS061", Level.STRUCTURE),
    ]
