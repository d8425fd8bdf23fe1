"""Tensor tables that break one rule each: SPEC section 7."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from spec.vectors.make.sample_tables import array_of, sealed_table, slab_model

Fields = dict[str, Any]
Change = Callable[[Fields], object]

ALSO: dict[str, tuple[str, ...]] = {
    "an empty range": ("DS020", "DS022"),
    "a range backwards": ("DS020", "DS022"),
    "a member twice": ("DS020", "DS021"),
    "boxes of two lengths": ("DS020", "DS022"),
    "an index of ten digits": ("DS020", "DS022", "DS025"),
    "too many members": ("DS020", "DS023", "DS025"),
    "10**9 members": ("DS023", "DS025"),
    "a pattern that does not take the index": ("DS021", "DS022", "DS025"),
    "an empty name": ("DS021", "DS023"),
    "an array twice": ("DS021", "DS022"),
}
"""All requirements that a table breaks where it breaks several."""

_COMMON: Fields = {"by": "common", "of": 0, "count": 0}


def _set(number: int, member: str, value: Any) -> Change:
    return lambda fields: fields["arrays"][number].__setitem__(member, value)


def _slab(number: int, by: str, of: int, count: int) -> Change:
    return _set(number, "slab", {"by": by, "of": of, "count": count})


def _only(*arrays: Fields) -> Change:
    """These arrays instead of those of the model, in a table without slabs."""
    return lambda fields: fields.update(arrays=list(arrays), slabs=0)


def _schema() -> dict[str, Change]:
    return {
        "unknown element type": _set(1, "dtype", "F4"),
        "an element type in lower case": _set(1, "dtype", "bf16"),
        "chunk extent 0": _set(1, "chunk", [1, 0]),
        "a chunk extent beyond the largest chunk": _set(1, "chunk", [1, 2**20 + 1]),
        "a negative extent": _set(1, "shape", [-1]),
        "an unknown slab rule": _slab(1, "row", 0, 0),
        "a slab rule without its count": lambda f: f["arrays"][1]["slab"].pop("count"),
        "a member too many": lambda f: f.__setitem__("note", "x"),
        "a member of an array too many": _set(1, "fill", 0),
        "a member missing": lambda f: f.pop("slabs"),
        "a member of an array missing": lambda f: f["arrays"][1].pop("pattern"),
        "an extent as text": _set(1, "shape", ["8"]),
        "true for an extent": _set(1, "shape", [True]),
        "a pattern that is null": _set(1, "pattern", None),
        "a range of one number": _set(0, "members", [[[0]]]),
        "a range of three numbers": _set(0, "members", [[[0, 2, 4]]]),
        "4097 slabs": lambda f: f.__setitem__("slabs", 4097),
        "negative slabs": lambda f: f.__setitem__("slabs", -1),
        "the kind of an inventory": lambda f: f.__setitem__("kind", "inventory"),
        "a kind that is null": lambda f: f.__setitem__("kind", None),
    }


def _members() -> dict[str, tuple[Change, str]]:
    def pairs(*members: Any) -> Change:
        return _only(array_of("a.*.b.*", (1,), list(members), [1, 1], _COMMON))

    return {
        "an empty range": (_set(0, "members", [[[2, 2]]]), "DS020"),
        "a range backwards": (_set(0, "members", [[[4, 0]]]), "DS020"),
        "members out of order": (_set(0, "members", [[[2, 4]], [[0, 2]]]), "DS020"),
        "members in too many boxes": (_set(0, "members", [[[0, 2]], [[2, 4]]]), "DS020"),
        "a member twice": (_set(0, "members", [[[0, 2]], [[1, 4]]]), "DS020"),
        "boxes of two lengths": (_set(0, "members", [[[0, 1]], [[1, 2], [0, 1]]]), "DS020"),
        "an index of ten digits": (_set(0, "members", [[[10**9, 10**9 + 1]]]), "DS020"),
        "boxes merged the other way": (
            pairs([[0, 1], [1, 2]], [[0, 2], [3, 4]], [[1, 2], [1, 2]]),
            "DS020",
        ),
        "a box that should be two": (pairs([[0, 1], [0, 1]], [[0, 1], [1, 2]]), "DS020"),
        "no members": (_set(1, "members", []), "DS022"),
        "a pattern that does not take the index": (_set(0, "pattern", "experts.w"), "DS022"),
        "a pattern that takes more indexes": (_set(0, "pattern", "experts.*.*"), "DS022"),
        "an index left in the pattern": (_set(1, "pattern", "norm.3"), "DS022"),
        "an index beside a place": (_set(0, "pattern", "experts.0.*"), "DS022"),
        "nine indexes": (
            _only(array_of("a" + ".*" * 9, (1,), [[[0, 1]] * 9], [1, 1], _COMMON)),
            "DS022",
        ),
        "an empty name": (_set(1, "pattern", ""), "DS021"),  # which also stands in the wrong place
        "nothing but an empty name": (_only(array_of("", (1,), [[]], [1, 1], _COMMON)), "DS023"),
        "a name of 1025 bytes": (
            _only(array_of("\u00e9" * 512 + "x", (1,), [[]], [1, 1], _COMMON)),
            "DS023",
        ),
        "a name of 1025 bytes with its index": (
            _only(array_of("x" * 1022 + ".*", (1,), [[[10, 11]]], [1, 1], _COMMON)),
            "DS023",
        ),
        "too many members": (_set(0, "members", [[[0, 1 << 40]]]), "DS020"),
        "10**9 members": (_set(0, "members", [[[0, 10**9]]]), "DS023"),
        "17 axes": (_only(array_of("w", (1,) * 17, [[]], [1] * 18, _COMMON)), "DS023"),
        "an array of 2**53 elements": (
            _only(array_of("w", (2**33, 2**20), [[]], [1, 1, 2**20], _COMMON)),
            "DS023",
        ),
        "an array of 2**53 elements if 0 is 1": (
            _only(array_of("w", (0, 2**52, 2), [[]], [1, 1, 1, 1], _COMMON)),
            "DS023",
        ),
        "2**32 chunks": (_only(array_of("w", (2**32,), [[]], [1, 1], _COMMON)), "DS023"),
        "patterns of more than 2**28 bytes": (
            _only(array_of("x" * 300 + ".*", (1,), [[[0, 2**20]]], [1, 1], _COMMON)),
            "DS023",
        ),
        "more than 2**21 tensors in two arrays": (
            _only(
                array_of("a.*", (1,), [[[0, 2**20 + 1]]], [1, 1], _COMMON),
                array_of("b.*", (1,), [[[0, 2**20]]], [1, 1], _COMMON),
            ),
            "DS023",
        ),
    }


def _arrays() -> dict[str, tuple[Change, str]]:
    own = array_of("w.*", (1,), [[]], [1, 1], _COMMON)
    other = array_of("w.*", (1,), [[[0, 1]]], [1, 1], _COMMON)
    return {
        "arrays out of order": (lambda f: f["arrays"].reverse(), "DS021"),
        "arrays out of order by their number of indexes": (_only(other, own), "DS021"),
        "arrays out of order by element type": (_only({**own, "dtype": "F16"}, own), "DS021"),
        "arrays out of order by shape": (
            _only(array_of("w", (10,), [[]], [1, 1], _COMMON), array_of("w", (9,), [[]], [1, 1], _COMMON)),
            "DS021",
        ),
        "an array twice, of two element types": (
            lambda f: f["arrays"].append({**f["arrays"][2], "dtype": "F16"}),
            "DS021",
        ),
        "an array twice": (lambda f: f["arrays"].insert(0, f["arrays"][0]), "DS022"),
        "one array in two": (
            _only(other, array_of("w.*", (1,), [[[1, 2]]], [1, 1], _COMMON)),
            "DS022",
        ),
        "chunk of another rank": (_set(1, "chunk", [8]), "DS024"),
        "chunk of a higher rank": (_set(1, "chunk", [1, 8, 1]), "DS024"),
        "chunk too large": (_set(1, "chunk", [2, 1 << 20]), "DS024"),
        "a slab axis that is not there": (_slab(2, "axis", 3, 0), "DS025"),
        "a slab index that is not there": (_slab(0, "member", 1, 4), "DS025"),
        "a slab index at the count": (_slab(0, "member", 0, 3), "DS025"),
        "a slab index of an array without one": (_slab(1, "member", 0, 1), "DS025"),
        "slab by member over several members": (_set(0, "chunk", [2, 4, 8]), "DS025"),
        "an axis rule with a count": (_slab(2, "axis", 1, 4), "DS025"),
        "a common rule with an axis": (_slab(1, "common", 1, 0), "DS025"),
        "a common rule with a count": (_slab(1, "common", 0, 1), "DS025"),
        "a slab rule without slabs": (lambda f: f.__setitem__("slabs", 0), "DS025"),
    }


def _changed(change: Change) -> str:
    fields = json.loads(slab_model().to_bytes())
    change(fields)
    return sealed_table(fields).decode("latin-1")


def bad_tables() -> list[Fields]:
    """Tables that a reader refuses."""
    changes = {name: (change, "DS013") for name, change in _schema().items()}
    rows = [
        {"name": name, "text": _changed(change), "code": "bad_json", "check": check, **_also(name)}
        for name, (change, check) in (changes | _members() | _arrays()).items()
    ]
    text = slab_model().to_bytes().decode("latin-1")
    spelled = {
        "a newer format": (_changed(lambda f: f.__setitem__("format", 2)), "newer_format", "DS012"),
        "one hash digit changed": (_other_digit(text), "bad_hash", "DS011"),
        "a space": (text.replace(":", ": ", 1), "bad_json", "DS010"),
        "a trailing newline": (text + "\n", "bad_json", "DS010"),
        "a key twice": (text.replace("{", '{"arrays":[],', 1), "bad_json", "DS010"),
        "cut short": (text[:-1], "bad_json", "DS010"),
        "empty": ("", "bad_json", "DS010"),
    }
    return rows + [
        {"name": name, "text": spelling, "code": code, "check": check}
        for name, (spelling, code, check) in spelled.items()
    ]


def _also(name: str) -> Fields:
    return {"checks": list(ALSO[name])} if name in ALSO else {}


def _other_digit(text: str) -> str:
    at = text.index('"sha256":"') + len('"sha256":"')
    return text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :]
