"""Inventories of anchors, good and bad: SPEC section 13."""

from __future__ import annotations

import json
from typing import Any

from deltastore.format.canonical import canonical_bytes, seal

Fields = dict[str, Any]


def _object(key: str, nbytes: int = 1, sha256: str = "0" * 64) -> Fields:
    return {"key": key, "bytes": nbytes, "sha256": sha256}


def _sealed(*objects: Any, **more: Any) -> str:
    fields = {"format": 1, "kind": "inventory", "objects": list(objects), **more}
    return canonical_bytes(seal(fields)).decode("latin-1")


def _good() -> dict[str, str]:
    return {
        "no objects": _sealed(),
        "keys by code point": _sealed(
            *map(_object, ("A", "_", "a-b", "a.b", "a/b", "a0", "array-00000/c/0/10", "array-00000/c/0/2"))
        ),
        "a segment of 200 characters": _sealed(_object("s" * 200)),
        "a key of 962 characters": _sealed(_object("/".join(["k" * 191] * 5 + ["kk"]))),
        "sizes at their ends": _sealed(_object("a", 0), _object("b", 2 << 30)),
    }


def _bad() -> dict[str, tuple[str, str, str]]:
    good = _sealed(_object("a"), _object("b"))
    schema = {
        "keys out of order": _sealed(_object("b"), _object("a")),
        "a key twice": _sealed(_object("a"), _object("a", 2)),
        "a key that climbs": _sealed(_object("../a")),
        "a key that climbs inside": _sealed(_object("a/../b")),
        "a key with an empty segment": _sealed(_object("a//b")),
        "a key that begins with a slash": _sealed(_object("/a")),
        "a key that ends with a slash": _sealed(_object("a/")),
        "an empty key": _sealed(_object("")),
        "a hidden key": _sealed(_object("a/.b")),
        "a key with a newline": _sealed(_object("a\n")),
        "a key with a zero byte": _sealed(_object("a\0b")),
        "a segment of 201 characters": _sealed(_object("s" * 201)),
        "a key of 963 characters": _sealed(_object("/".join(["k" * 191] * 5 + ["kkk"]))),
        "a negative size": _sealed(_object("a", -1)),
        "a size above the limit": _sealed(_object("a", (2 << 30) + 1)),
        "a hash of 63 digits": _sealed(_object("a", 1, "0" * 63)),
        "a member of an object too many": _sealed({**_object("a"), "mode": 0}),
        "a member too many": _sealed(note="x"),
        "the kind of a table": _sealed(kind="table"),
    }
    found = {name: (text, "bad_json", "DS013") for name, text in schema.items()}
    return found | {
        "objects that are no list": (_sealed(objects={}), "bad_json", "DS013"),
        "a newer format": (_sealed(format=2), "newer_format", "DS012"),
        "a changed digit": (good.replace('"bytes":1', '"bytes":2', 1), "bad_hash", "DS011"),
        "a space": (good.replace(":", ": ", 1), "bad_json", "DS010"),
    }


def vectors() -> object:
    """Stored bytes -> number of objects and their bytes; or what is refused."""
    ok = []
    for name, text in _good().items():
        sizes = [item["bytes"] for item in json.loads(text)["objects"]]
        ok.append({"name": name, "text": text, "objects": len(sizes), "bytes": sum(sizes)})
    err = [
        {"name": name, "text": text, "code": code, "check": check}
        for name, (text, code, check) in _bad().items()
    ]
    return {"ok": ok, "err": err}
