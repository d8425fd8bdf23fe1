"""Stores that are sound though this package writes none like them, as edits of others: SPEC section 13."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from spec.vectors.make.breaking import Fields, edits
from spec.vectors.make.objects import (
    Objects,
    anchor_prefix,
    change_object,
    load,
    record_key,
    record_of,
    records,
)

Change = Callable[[Fields], object]

_STREAMS = Path(__file__).parents[1] / "streams"
_LITTLE: Fields = {"name": "bytes", "configuration": {"endian": "little"}}


def _single_bytes(first: Any) -> Change:
    """The first codec of the arrays whose elements are single bytes."""

    def change(fields: Fields) -> None:
        if fields["data_type"] in ("uint8", "int8"):
            fields["codecs"][0]["configuration"]["codecs"][0] = first

    return change


def _arrays(base: str, version: int, change: Change) -> tuple[Objects, Objects]:
    """A store, and the same after a change of the metadata of all arrays of an anchor."""
    before = load(_STREAMS / base)
    after = dict(before)

    def changed(data: bytes) -> bytes:
        fields = json.loads(data)
        change(fields)
        return json.dumps(fields).encode()

    prefix = anchor_prefix(record_of(after, version))
    for key in sorted(after):
        if key.startswith(f"{prefix}array-") and key.endswith("/zarr.json"):
            change_object(after, version, key.removeprefix(prefix), changed)
    return before, after


def _put(**members: Any) -> Change:
    return lambda fields: fields.update(members)


def _left_out(fields: Fields) -> None:
    for name in ("storage_transformers", "dimension_names", "fill_value"):
        fields.pop(name, None)
    fields["codecs"][0]["configuration"].pop("index_location")


def _by_name(fields: Fields) -> None:
    inner = fields["codecs"][0]["configuration"]
    for name in ("codecs", "index_codecs"):
        inner[name][1] = "crc32c"
    fields["chunk_key_encoding"] = "default"


def _metadata() -> dict[str, Change]:
    return {
        "everything left out that may be": _left_out,
        "extensions by their names": _by_name,
        "chunk keys without configuration": _put(chunk_key_encoding={"name": "default"}),
        "chunk keys of an empty configuration": _put(
            chunk_key_encoding={"name": "default", "configuration": {}}
        ),
        "no storage transformers": _put(storage_transformers=[]),
        "members that no page names": _put(note=[1.5, None, {"deep": [[[[]]]]}]),
        "a fill value that is NaN": _put(fill_value="NaN"),
    }


def _odd_files() -> Iterator[tuple[str, list[Fields]]]:
    objects = load(_STREAMS / "v1-by-hand")
    prefix = anchor_prefix(record_of(objects, 6))
    slot = len(records(objects))
    yield "a folder in the next slot", [{"key": record_key(slot), "folder": True}]
    yield "a name that is no key in an anchor", [{"key": f"{prefix}.left-over", "text": "x"}]
    yield "a name that is no slot in the log", [{"key": "log/8.json", "text": "x"}]
    yield "a pack that nothing names", [{"key": f"packs/{5:020}/{'0' * 64}.pack", "text": "x"}]
    yield "an object under another prefix", [{"key": "example.org-notes/a", "text": "x"}]


def _row(name: str, base: str, done: list[Fields], objects: Objects) -> Fields:
    versions = [record for record in records(objects) if "version" in record]
    newest = versions[-1]
    facts = {"versions": len(versions), "version": newest["version"], "digest": newest["digest"]}
    return {"name": name, "base": base, "edits": done, **facts}


def vectors() -> object:
    """A store and edits -> number of versions, and number and digest of the newest."""
    rows = []
    bytewise: dict[str, Any] = {
        "little-endian": _LITTLE,
        "by name": "bytes",
        "of an empty configuration": {"name": "bytes", "configuration": {}},
    }
    changes = {
        f"single bytes, {name}": ("v1-dtypes", 0, _single_bytes(one)) for name, one in bytewise.items()
    }
    changes |= {name: ("v1-by-hand", 6, change) for name, change in _metadata().items()}
    for name, (base, version, change) in changes.items():
        before, after = _arrays(base, version, change)
        rows.append(_row(name, base, edits(before, after), after))
    objects = load(_STREAMS / "v1-by-hand")
    rows += [_row(name, "v1-by-hand", done, objects) for name, done in _odd_files()]
    return rows
