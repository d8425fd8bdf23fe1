"""Log records, good and bad: SPEC sections 5, 11 and 12."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from deltastore.format.canonical import canonical_bytes, seal
from deltastore.format.records import AnchorRecord, BirthRecord, DeltaRecord, EpochRecord

Fields = dict[str, Any]

_HASH = "0123456789abcdef" * 4
_COMMON: Fields = {
    "parent": _HASH,
    "epoch": 1,
    "nonce": "0f" * 16,
    "time": 1_750_000_000_000,
    "ignorable": False,
}
_VERSION: Fields = {
    **_COMMON,
    "table": _HASH,
    "digest": "00000000000000ff",
    "statistics": {"elements": 100, "changed": 3, "bytes": 200, "detector": "snapshot"},
    "metadata": {
        "step": 12,
        "run": 'gr\u00fcn \u2028 \U0001f600 "\\\n\t\u0001\u007f',
        "best": True,
        "note": None,
    },
}


def _birth() -> BirthRecord:
    return BirthRecord.seal_new(**{**_COMMON, "slot": 0, "parent": None, "epoch": 0, "stream": "ab" * 16})


def _epoch() -> EpochRecord:
    return EpochRecord.seal_new(**_COMMON, slot=1, resumes=None, writer="trainer-0")


def _delta() -> DeltaRecord:
    pack = {"sha256": _HASH, "bytes": 200, "index_sha256": _HASH, "rows": 1, "count": 3, "slabs": [0, 0]}
    return DeltaRecord.model_validate_json(
        canonical_bytes(
            seal(
                {
                    **_VERSION,
                    "format": 1,
                    "kind": "delta",
                    "slot": 3,
                    "version": 1,
                    "base": 0,
                    "writers": 1,
                    "packs": [pack],
                }
            )
        )
    )


def _anchor() -> AnchorRecord:
    fields = {
        **_VERSION,
        "format": 1,
        "kind": "anchor",
        "slot": 2,
        "version": 0,
        "anchor": {"attempt": "5a" * 16, "inventory_sha256": _HASH, "inventory_bytes": 321},
        "files": [{"name": "config.json", "bytes": 17, "sha256": _HASH}],
    }
    return AnchorRecord.model_validate_json(canonical_bytes(seal(fields)))


def _skipped() -> str:
    fields = {**_COMMON, "format": 1, "kind": "label", "slot": 4, "ignorable": True, "name": "stable"}
    return canonical_bytes(seal(fields)).decode("latin-1")


def _row(name: str, slot: int, text: str, **more: str) -> Fields:
    return {"name": name, "slot": slot, "text": text, **more}


def _good() -> list[Fields]:
    found = {"inverted": 90, "uncertain": 2, "blocks": 1, "settled": 1, "unexplained": 0}
    certified = _with(_delta(), "statistics", "certificate", found)
    rows = [
        _row(record.kind, record.slot, record.to_bytes().decode("latin-1"), kind=record.kind)
        for record in (_birth(), _epoch(), _anchor(), _delta())
    ]
    rows.append(_row("a delta by a writer without a copy", 3, certified, kind="delta"))
    return [*rows, _row("an unknown kind that may be skipped", 4, _skipped(), kind="label")]


def _changed(record: Any, change: Callable[[Fields], object]) -> str:
    fields = json.loads(record.to_bytes())
    change(fields)
    return canonical_bytes(seal(fields)).decode("latin-1")


def _with(record: Any, *path: Any) -> str:
    """The record with the member at ``path[:-1]`` as ``path[-1]``."""
    *inner, member, value = path

    def change(fields: Fields) -> None:
        place: Any = fields
        for step in inner:
            place = place[step]
        place[member] = value

    return _changed(record, change)


def _bad() -> list[Fields]:
    changed, put = _changed, _with
    good, anchor = _delta(), _anchor()
    plain = good.to_bytes().decode("latin-1")
    files = json.loads(anchor.to_bytes())["files"]
    cases = {
        "empty": ("", "bad_json"),
        "not JSON": ("nonsense", "bad_json"),
        "a list": ("[]", "bad_json"),
        "not UTF-8": ("\xff" + plain, "bad_json"),
        "NaN": (plain.replace('"changed":3', '"changed":NaN'), "bad_json"),
        "a float": (plain.replace('"changed":3', '"changed":3.0'), "bad_json"),
        "an integer beyond 2**53 - 1": (
            plain.replace('"changed":3', '"changed":9007199254740992'),
            "bad_json",
        ),
        "nested too deep": ("[" * 20_000 + "]" * 20_000, "bad_json"),
        "keys out of order": ("{" + '"slot":3,' + plain[1:].replace('"slot":3,', ""), "bad_json"),
        "a key twice": ('{"base":0,' + plain[1:], "bad_json"),
        "an escaped letter": (plain.replace('"best"', '"\\u0062est"'), "bad_json"),
        "a lone surrogate": (plain.replace('"snapshot"', '"\\ud800"'), "bad_json"),
        "a trailing space": (plain + " ", "bad_json"),
        "a changed digit": (plain.replace('"changed":3', '"changed":4'), "bad_hash"),
        "no hash": (plain.replace(f'"sha256":"{good.sha256}",', ""), "bad_hash"),
        "another slot": (put(good, "slot", 4), "bad_chain"),
        "slot 0 with a parent": (put(_birth(), "parent", _HASH), "bad_json"),
        "a later slot without a parent": (put(good, "parent", None), "bad_json"),
        "a newer format": (put(good, "format", 2), "newer_format"),
        "format as text": (put(good, "format", "1"), "bad_json"),
        "an unknown kind": (put(good, "kind", "label"), "unknown_kind"),
        "no kind": (changed(good, lambda fields: fields.pop("kind")), "unknown_kind"),
        "a member too many": (put(good, "signature", "x"), "bad_json"),
        "a member missing": (changed(good, lambda fields: fields.pop("writers")), "bad_json"),
        "an integer as text": (put(good, "version", "1"), "bad_json"),
        "true for an integer": (put(good, "version", True), "bad_json"),
        "a negative version": (put(good, "version", -1), "bad_json"),
        "a base that is not below the version": (put(good, "base", 1), "bad_json"),
        "a hash in upper case": (put(good, "table", _HASH.upper()), "bad_json"),
        "a digest of 15 digits": (put(good, "digest", "0" * 15), "bad_json"),
        "no writers": (put(good, "writers", 0), "bad_json"),
        "a pack without rows": (put(good, "packs", 0, "rows", 0), "bad_json"),
        "a pack above the limit": (put(good, "packs", 0, "bytes", (1 << 30) + 1), "bad_json"),
        "slabs of a pack backwards": (put(good, "packs", 0, "slabs", [3, 1]), "bad_json"),
        "an index longer than its pack": (put(good, "packs", 0, "rows", 4), "bad_json"),
        "a pack hash that climbs": (put(good, "packs", 0, "sha256", "../" * 21 + "x"), "bad_json"),
        "a certificate that is null": (put(good, "statistics", "certificate", None), "bad_json"),
        "an empty certificate": (put(good, "statistics", "certificate", {}), "bad_json"),
        "metadata that is a list": (put(good, "metadata", "step", [1]), "bad_json"),
        "a metadata key with a space": (put(good, "metadata", "a b", 1), "bad_json"),
        "metadata text too long": (put(good, "metadata", "note", "x" * 1025), "bad_json"),
        "an attempt that climbs": (put(anchor, "anchor", "attempt", "../" * 10 + "xx"), "bad_json"),
        "a file name that climbs": (put(anchor, "files", 0, "name", "../config.json"), "bad_json"),
        "a file name with a slash": (put(anchor, "files", 0, "name", "a/config.json"), "bad_json"),
        "a hidden file": (put(anchor, "files", 0, "name", ".config.json"), "bad_json"),
        "a file name twice": (put(anchor, "files", files * 2), "bad_json"),
        "a file above the limit": (put(anchor, "files", 0, "bytes", (256 << 20) + 1), "bad_json"),
    }
    slots = {"slot 0 with a parent": 0}
    rows = []
    for name, (text, code) in cases.items():
        slot = slots.get(name, 2 if "file" in name or "attempt" in name else 3)
        rows.append(_row(name, slot, text, code=code))
    return rows


def vectors() -> object:
    """Slot and stored bytes -> kind; or an error code."""
    return {"ok": _good(), "err": _bad()}
