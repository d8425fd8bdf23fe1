"""Tensor tables that claim more than there is, or name what nobody may write."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from deltastore.format.records import table_key

from .attack import Attack, attack, rewritten, sealed
from .resealing import Fields, Objects, Rewriting, records_of
from .ways import FOLLOWERS

Change = Callable[[Fields], None]


def _table(name: str, change: Change, rules: str, codes: str = "bad_json") -> Attack:
    """A changed table in all records; followers see that their chain is another one."""

    def make(rewriting: Rewriting) -> None:
        sha256 = rewriting.records[2]["table"]
        table = json.loads(rewriting.objects[table_key(sha256)])
        change(table)
        rewriting.replace_table(sha256, table)

    return attack(f"table: {name}", rewritten(make), f"{codes} bad_chain", f"{rules} DS051")


def _array(number: int = 1, **members: Any) -> Change:
    return lambda table: table["arrays"][number].update(members)


def _of_name(objects: Objects) -> str:
    return table_key(records_of(objects)[2]["table"])


def _stored(name: str, change: Callable[[bytes], bytes | None], codes: str, rules: str) -> Attack:
    """Other bytes under the name of the table; who has read it before does not read it again."""

    def make(objects: Objects) -> Objects:
        key = _of_name(objects)
        data = change(objects.pop(key))
        return objects if data is None else {**objects, key: data}

    return attack(f"table: {name}", make, codes, rules, passes=FOLLOWERS)


def attacks() -> list[Attack]:
    """All of them."""
    wide = [[0, 10**9]]
    return [
        _table("a billion members", _array(members=[wide]), "DS023"),
        _table(
            "members of eight axes", _array(pattern="a." + ".".join("*" * 8), members=[wide * 8]), "DS023"
        ),
        _table("nine indexes", _array(pattern="a." + ".".join("*" * 9), members=[[[0, 1]] * 9]), "DS022"),
        _table("an empty range", _array(members=[[[3, 3]]]), "DS020"),
        _table("a range backwards", _array(members=[[[3, 0]]]), "DS020"),
        _table("a range of one number", _array(members=[[[3]]]), "DS013"),
        _table("overlapping boxes", _array(members=[[[0, 2]], [[1, 3]]]), "DS020"),
        _table("boxes in pieces", _array(members=[[[0, 1]], [[1, 3]]]), "DS020"),
        _table("no members", _array(members=[]), "DS022"),
        _table(
            "2,000 boxes",
            _array(members=[[[2 * at, 2 * at + 1]] for at in range(2_000)]),
            "DS064 DS071 DS072 DS074",
            "bad_json bad_anchor unknown_tensor missing_tensor",
        ),
        _table("a chunk of 2^53", _array(chunk=[1, 2**53 - 1, 1]), "DS013 DS024"),
        _table("a chunk of 2^40 elements", _array(chunk=[1, 2**20, 2**20]), "DS024"),
        _table("a chunk of nothing", _array(chunk=[1, 0, 5]), "DS013"),
        _table("a chunk of other axes", _array(chunk=[1, 2, 2, 2]), "DS024"),
        _table("17 axes", _array(shape=[1] * 17, chunk=[1] * 18), "DS023"),
        _table("a shape of 2^53 x 2^53", _array(shape=[2**53 - 1] * 2), "DS023"),
        _table("a shape of many zeros", _array(shape=[0, 2**53 - 1], chunk=[1, 1, 1]), "DS023"),
        _table("2^40 chunks", _array(shape=[2**20, 2**20], chunk=[1, 1, 1]), "DS023"),
        _table("a negative extent", _array(shape=[-1, 5]), "DS013"),
        _table("10,000 extents", _array(shape=[1] * 10_000), "DS023"),
        _table("10,000 wrong extents", _array(shape=["x"] * 10_000), "DS013"),
        _table("an unknown type", _array(dtype="F4"), "DS013"),
        _table(
            "a name of control characters",
            _array(3, pattern="\x1b[2J\x07\r\u202e../x"),
            "DS021 DS022 DS064 DS071",
            "bad_json bad_anchor missing_tensor unknown_tensor",
        ),
        _table(
            "a name of dots and slashes",
            _array(3, pattern="../../etc/passwd"),
            "DS021 DS022 DS064 DS071",
            "bad_json bad_anchor missing_tensor unknown_tensor",
        ),
        _table("an empty name", _array(0, pattern=""), "DS023"),
        _table("a name that is too long", _array(3, pattern="z" * 1025), "DS023"),
        _table("a lone surrogate", _array(3, pattern="z\ud800"), "DS010"),
        _table("a pattern that is none", _array(3, pattern="zz.7"), "DS022"),
        _table("arrays out of order", lambda table: table["arrays"].reverse(), "DS021"),
        _table("an array twice", lambda table: table["arrays"].insert(0, table["arrays"][0]), "DS022 DS021"),
        _table(
            "no arrays",
            lambda table: table["arrays"].clear(),
            "DS064 DS072 DS074",
            "bad_json bad_anchor unknown_tensor",
        ),
        _table("more slabs than any", lambda table: table.update(slabs=4097), "DS013 DS100"),
        _table("a rule without slabs", lambda table: table.update(slabs=0), "DS025"),
        _table("a rule on no axis", _array(slab={"by": "axis", "of": 99, "count": 0}), "DS025"),
        _table(
            "a rule of a member that is none",
            _array(slab={"by": "member", "of": 7, "count": 2**53 - 1}),
            "DS025",
        ),
        _table("format 2", lambda table: table.update(format=2), "DS012", "newer_format"),
        _table("another kind", lambda table: table.update(kind="inventory"), "DS013"),
        _stored("gone", lambda _: None, "lost_object", "DS063"),
        _stored("empty", lambda _: b"", "bad_json", "DS010"),
        _stored("cut short", lambda data: data[:-1], "bad_json", "DS010"),
        _stored("a million deep", lambda _: b"[" * 10**6, "bad_json", "DS010"),
        _stored("another sound table", _other, "bad_hash", "DS011"),
        _stored("a record", lambda _: b"", "bad_json", "DS010"),
    ]


def _other(data: bytes) -> bytes:
    table = json.loads(data)
    table["arrays"][0]["slab"] = {"by": "common", "count": 0, "of": 0}
    table["arrays"][1]["slab"] = {"by": "common", "count": 0, "of": 0}
    return sealed(table)
