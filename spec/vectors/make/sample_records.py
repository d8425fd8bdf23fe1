"""A record of every kind, and ways to change one member of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from deltastore.format.canonical import canonical_bytes, seal
from deltastore.format.records import AnchorRecord, BirthRecord, DeltaRecord, EpochRecord

Fields = dict[str, Any]

HASH = "0123456789abcdef" * 4
COMMON: Fields = {
    "parent": HASH,
    "epoch": 1,
    "nonce": "0f" * 16,
    "time": 1_750_000_000_000,
    "ignorable": False,
}
_VERSION: Fields = {
    **COMMON,
    "table": HASH,
    "digest": "00000000000000ff",
    "statistics": {"elements": 100, "changed": 3, "bytes": 200, "detector": "snapshot"},
    "metadata": {
        "step": 12,
        "run": 'gr\u00fcn \u2028 \U0001f600 "\\\n\t\u0001\u007f',
        "best": True,
        "note": None,
    },
}


def birth() -> BirthRecord:
    """Slot 0."""
    return BirthRecord.seal_new(**{**COMMON, "slot": 0, "parent": None, "epoch": 0, "stream": "ab" * 16})


def epoch() -> EpochRecord:
    """Slot 1."""
    return EpochRecord.seal_new(**COMMON, slot=1, resumes=None, writer="trainer-0")


def delta() -> DeltaRecord:
    """Slot 3, version 1 from version 0 by one pack."""
    pack = {"sha256": HASH, "bytes": 200, "index_sha256": HASH, "rows": 1, "count": 3, "slabs": [0, 0]}
    fields = {**_VERSION, "format": 1, "kind": "delta", "slot": 3, "version": 1, "base": 0, "writers": 1}
    return DeltaRecord.model_validate_json(canonical_bytes(seal({**fields, "packs": [pack]})))


def anchor() -> AnchorRecord:
    """Slot 2, version 0 with one carried file."""
    fields = {
        **_VERSION,
        "format": 1,
        "kind": "anchor",
        "slot": 2,
        "version": 0,
        "anchor": {"attempt": "5a" * 16, "inventory_sha256": HASH, "inventory_bytes": 321},
        "files": [{"name": "config.json", "bytes": 17, "sha256": HASH}],
    }
    return AnchorRecord.model_validate_json(canonical_bytes(seal(fields)))


def text_of(record: Any) -> str:
    """The stored bytes as Latin-1."""
    return str(record.to_bytes().decode("latin-1"))


def sealed(fields: Fields) -> str:
    """Members as a sealed object, as Latin-1."""
    return canonical_bytes(seal(fields)).decode("latin-1")


def changed(record: Any, change: Callable[[Fields], object]) -> str:
    """The record after a change of its members, sealed again."""
    fields = json.loads(record.to_bytes())
    change(fields)
    return sealed(fields)


def put(record: Any, *path: Any) -> str:
    """The record with the member at ``path[:-1]`` as ``path[-1]``."""
    *inner, member, value = path

    def change(fields: Fields) -> None:
        place: Any = fields
        for step in inner:
            place = place[step]
        place[member] = value

    return changed(record, change)


def without(record: Any, *path: Any) -> str:
    """The record without the member at ``path``."""
    *inner, member = path

    def change(fields: Fields) -> None:
        place: Any = fields
        for step in inner:
            place = place[step]
        del place[member]

    return changed(record, change)
