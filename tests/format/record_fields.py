"""One valid record of every kind as JSON members, so that a test can break one of them."""

from __future__ import annotations

import copy
from typing import Any

from deltastore.format.canonical import canonical_bytes, seal

Fields = dict[str, Any]
Path = tuple[Any, ...]

HASH = "0123456789abcdef" * 4
COMMON: Fields = {
    "format": 1,
    "parent": HASH,
    "epoch": 1,
    "nonce": "0f" * 16,
    "time": 1_750_000_000_000,
    "ignorable": False,
}
VERSION: Fields = {
    **COMMON,
    "table": HASH,
    "digest": "00000000000000ff",
    "statistics": {"elements": 100, "changed": 3, "bytes": 200, "detector": "snapshot"},
    "metadata": {"step": 12, "note": "grün", "best": True, "none": None},
}
PACK: Fields = {
    "sha256": HASH,
    "bytes": 200,
    "index_sha256": HASH,
    "rows": 1,
    "count": 3,
    "slabs": [0, 2],
}
RECORDS: dict[str, Fields] = {
    "birth": {**COMMON, "kind": "birth", "slot": 0, "parent": None, "epoch": 0, "stream": "ab" * 16},
    "epoch": {**COMMON, "kind": "epoch", "slot": 1, "resumes": None, "writer": "trainer-0"},
    "anchor": {
        **VERSION,
        "kind": "anchor",
        "slot": 2,
        "version": 0,
        "anchor": {"attempt": "5a" * 16, "inventory_sha256": HASH, "inventory_bytes": 321},
        "files": [{"name": "config.json", "bytes": 17, "sha256": HASH}],
    },
    "delta": {
        **VERSION,
        "kind": "delta",
        "slot": 3,
        "version": 1,
        "base": 0,
        "writers": 1,
        "packs": [PACK],
    },
}


def record(kind: str) -> Fields:
    """A fresh copy of the record of a kind."""
    return copy.deepcopy(RECORDS[kind])


def put(fields: Fields, path: Path, value: Any) -> Fields:
    """A copy with the member at ``path`` replaced; ``...`` removes it."""
    changed = copy.deepcopy(fields)
    place: Any = changed
    for step in path[:-1]:
        place = place[step]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return changed


def paths_of(value: Any, path: Path = ()) -> list[Path]:
    """Where every member stands, inner ones too, except the user's metadata."""
    inner = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    found: list[Path] = []
    for step, item in inner:
        found.append((*path, step))
        if isinstance(item, dict | list) and step != "metadata":
            found += paths_of(item, (*path, step))
    return found


def stored(fields: Fields) -> bytes:
    """Sealed and in canonical form."""
    return canonical_bytes(seal(fields))
