"""SPEC 11 and 12: records and manifests, one at a time."""

from __future__ import annotations

import re
from typing import Any

from spec.decoder.json_objects import COUNT, HASH, HEX16, HEX32, SEAL, conforms, decode_json, text
from spec.decoder.refusal import need


def is_metadata(value: Any) -> bool:
    """The user's metadata."""
    name, item = re.compile("[A-Za-z0-9_.-]{1,64}"), (text(1024), int, bool, None)
    few = isinstance(value, dict) and len(value) <= 64
    return few and all(name.fullmatch(key) and conforms(one, item) for key, one in value.items())


LABEL = text(200)
COMMON = {**SEAL, "kind": str, "slot": COUNT, "parent": (HASH, None), "epoch": COUNT, "nonce": HEX32}
COMMON |= {"time": COUNT, "ignorable": bool}
KNOWN = COMMON | {"ignorable": False}
MANIFEST = {**KNOWN, "version": COUNT, "table": HASH, "digest": HEX16}
STATISTICS = {"elements": COUNT, "changed": COUNT, "bytes": COUNT, "detector": LABEL}
CERTIFICATE = dict.fromkeys(["inverted", "uncertain", "blocks", "settled", "unexplained"], COUNT)
MANIFEST |= {"statistics": (STATISTICS, {**STATISTICS, "certificate": CERTIFICATE})}
MANIFEST |= {"metadata": is_metadata}
SLAB = range(4097)
PACK = {"sha256": HASH, "bytes": range(1, 2**30 + 1), "index_sha256": HASH, "rows": range(1, 2**22 + 1)}
PACK |= {"count": COUNT, "slabs": lambda pair: conforms(pair, [SLAB]) and len(pair) == 2}
PACKS = [lambda pack: conforms(pack, PACK) and is_pack(pack)]
ANCHOR = {"attempt": HEX32, "inventory_sha256": HASH, "inventory_bytes": range(1, 2**26 + 1)}
FILE_NAME = re.compile(r"(?!(?i:.*\.(safetensors|index\.json))\Z)[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
FILE = {"name": FILE_NAME, "bytes": range(2**28 + 1), "sha256": HASH}
KINDS: dict[str, dict[str, Any]] = {
    "birth": {**KNOWN, "stream": HEX32},
    "epoch": {**KNOWN, "resumes": (COUNT, None), "writer": LABEL},
    "delta": {**MANIFEST, "base": COUNT, "writers": range(1, 65537), "packs": PACKS},
    "anchor": {**MANIFEST, "anchor": ANCHOR, "files": [FILE]},
}

OTHERS = {"table", "inventory", "call", "join", "claim", "attempt", "vote", "ending", "layout", "attestation"}


def is_pack(pack: dict[str, Any]) -> bool:
    """What relates the members of a pack's entry."""
    first, last = pack["slabs"]
    return bool(64 + 44 * pack["rows"] <= pack["bytes"] and first <= last)


def record_key(slot: int) -> str:
    """The key of a slot."""
    return f"log/{slot:020}.json"


def decode_record(raw: bytes, slot: int) -> dict[str, Any]:
    """DS050 to DS052, DS060: a record by itself."""
    record = decode_json(raw, 4 * 2**20)
    kind = record.get("kind")
    need(not isinstance(kind, str) or kind not in OTHERS, "bad_json", "DS013", f"a {kind!r:.80} in the log")
    known = isinstance(kind, str) and kind in KINDS
    need(known or record.get("ignorable") is True, "unknown_kind", "DS052", f"kind {kind!r:.80}")
    schema = KINDS[str(kind)] if known else COMMON
    members = record if known else {key: item for key, item in record.items() if key in COMMON}
    need(conforms(members, schema), "bad_json", "DS013", f"members of a record of kind {kind}")
    first = (record["slot"] == 0) == (record["parent"] is None)
    need(first, "bad_json", "DS051", "null is the parent in slot 0, and nowhere else")
    if kind == "delta":
        need(record["base"] < record["version"], "bad_json", "DS060", "a base that is not below its version")
        need(len(record["packs"]) <= 8192, "bad_json", "DS100", "packs of a version")
    if kind == "anchor":
        need(len(record["files"]) <= 256, "bad_json", "DS100", "carried files")
        names = {file["name"] for file in record["files"]}
        need(len(record["files"]) == len(names), "bad_json", "DS013", "a name of a carried file twice")
        weights = [name for name in names if name.lower().endswith((".safetensors", ".index.json"))]
        need(not weights, "bad_json", "DS013", "a carried file with a name of weights")
    need(record["slot"] == slot, "bad_chain", "DS051", "a record in another slot than its own")
    need((kind == "birth") == (slot == 0), "bad_chain", "DS050", "a birth stands in slot 0, and nowhere else")
    need(kind != "birth" or record["epoch"] == 0, "bad_chain", "DS053", "the epoch of a birth")
    return record
