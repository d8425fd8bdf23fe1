"""Log records, good and bad: SPEC sections 5, 11 and 12."""

from __future__ import annotations

from typing import Any

from spec.vectors.make.bad_records import bad_records
from spec.vectors.make.sample_records import (
    COMMON,
    anchor,
    birth,
    changed,
    delta,
    epoch,
    put,
    sealed,
    text_of,
)

Fields = dict[str, Any]

_MOST = 2**53 - 1


def _row(name: str, slot: int, text: str, kind: str) -> Fields:
    return {"name": name, "slot": slot, "text": text, "kind": kind}


def _good() -> list[Fields]:
    found = {"inverted": 90, "uncertain": 2, "blocks": 1, "settled": 1, "unexplained": 0}
    certified = put(delta(), "statistics", "certificate", found)
    skipped = {**COMMON, "format": 1, "kind": "label", "slot": 4, "ignorable": True, "name": "stable"}
    rows = [
        _row(record.kind, record.slot, text_of(record), record.kind)
        for record in (birth(), epoch(), anchor(), delta())
    ]
    rows.append(_row("a delta by a writer without a copy", 3, certified, "delta"))
    rows.append(_row("an unknown kind that may be skipped", 4, sealed(skipped), "label"))
    return rows + _limits() + _skipped(skipped)


def _limits() -> list[Fields]:
    """Members at their limits."""
    full: Fields = {f"key-{number:02}_.": number - 31 for number in range(62)}
    full |= {"k" * 64: "\U0001f600" * 1024, "A.z_0-9": ""}
    pack = {**delta().packs[0].model_dump(mode="json"), "slabs": [0, 4096]}
    longest = {"name": "f" * 200, "bytes": 256 << 20, "sha256": "f" * 64}
    names = ("0", "index.json", "safetensors", "a.safetensors.txt")
    files = [{"name": name, "bytes": 0, "sha256": "0" * 64} for name in names]
    return [
        _row("metadata at its limits", 3, put(delta(), "metadata", full), "delta"),
        _row("no metadata", 3, put(delta(), "metadata", {}), "delta"),
        _row("integers at both ends", 3, put(delta(), "metadata", {"a": _MOST, "b": -_MOST}), "delta"),
        _row("counts at the end", 3, put(delta(), "statistics", "elements", _MOST), "delta"),
        _row("a delta without packs", 3, put(delta(), "packs", []), "delta"),
        _row("65536 writers", 3, put(delta(), "writers", 65536), "delta"),
        _row("a pack that writes nothing", 3, put(delta(), "packs", [{**pack, "count": 0}]), "delta"),
        _row("the highest slab", 3, put(delta(), "packs", [pack]), "delta"),
        _row("the highest version", 3, put(delta(), "version", _MOST), "delta"),
        _row("a detector of 200 characters", 3, put(delta(), "statistics", "detector", "é" * 200), "delta"),
        _row("a writer of 200 characters", 1, put(epoch(), "writer", "\U0001f600" * 200), "epoch"),
        _row("an epoch that resumes", 1, put(epoch(), "resumes", 7), "epoch"),
        _row("carried files", 2, put(anchor(), "files", [longest, *files]), "anchor"),
        _row("no carried file", 2, put(anchor(), "files", []), "anchor"),
        _row("a time before all others", 0, put(birth(), "time", 0), "birth"),
    ]


def _skipped(skipped: Fields) -> list[Fields]:
    """Records of unknown kinds, whatever they hold beside the common members."""
    deep: Any = 0
    for _ in range(15):
        deep = [deep]
    return [
        _row("an unknown kind, nested 16 deep", 4, sealed({**skipped, "deep": deep}), "label"),
        _row(
            "an unknown kind with members of manifests",
            4,
            sealed({**skipped, "packs": [], "base": 9}),
            "label",
        ),
        _row("a kind that is no word", 4, sealed({**skipped, "kind": "\u2603"}), "\u2603"),
        _row("an empty kind", 4, sealed({**skipped, "kind": ""}), ""),
        _row(
            "control characters and keys out of the way",
            4,
            sealed({**skipped, "name": "\b\t\n\f\r\x00\x1f\x7f\u2028", "": [{}], "~": {"a": -0}}),
            "label",
        ),
        _row("a delta of a later slot", 9, changed(delta(), lambda fields: fields.update(slot=9)), "delta"),
    ]


def vectors() -> object:
    """Slot and stored bytes -> kind; or what is refused."""
    return {"ok": _good(), "err": bad_records()}
