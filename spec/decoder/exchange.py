"""SPEC 14.3 and 15.3: what writers tell each other, and readers whoever asks; one object at a time."""

from __future__ import annotations

import re
from typing import Any

from spec.decoder.json_objects import COUNT, HASH, HEX16, HEX32, SEAL, conforms, decode_json, text
from spec.decoder.records import CERTIFICATE, LABEL, PACKS
from spec.decoder.refusal import need

RANK, STEP = range(65536), (range(1 - 2**53, 2**53), None)


def is_box(box: Any) -> bool:
    """A box over (member, tensor axes)."""
    axes = conforms(box, {"array": COUNT, "start": [COUNT], "size": [COUNT]})
    return bool(axes and 1 <= len(box["start"]) == len(box["size"]) <= 17)


CALL = {"run": re.compile("[A-Za-z0-9_][A-Za-z0-9._-]{0,199}"), "call": COUNT, "nonce": HEX32}
CALL |= {"writers": range(1, 65537), "table": HASH}
JOIN = {"call": HASH, "rank": RANK, "nonce": HEX32, "label": LABEL, "claim": HASH, "digest": HEX16}
ATTEMPT = {"epoch": COUNT, "epoch_nonce": HEX32, "attempt": COUNT, "nonce": HEX32, "version": COUNT}
ATTEMPT |= {"base": (COUNT, None), "parent": (HASH, None), "table": HASH, "step": STEP}
VOTE = {"attempt": HASH, "rank": RANK, "nonce": HEX32, "epoch_nonce": HEX32, "parent": (HASH, None)}
VOTE |= {"step": STEP, "claim": HASH, "packs": PACKS, "changed": COUNT, "difference": HEX16}
VOTE |= {"detector": LABEL}
ATTESTATION = {"stream": HEX32, "table": HASH, "version": COUNT, "record": HASH, "digests": [HEX16]}
ATTESTATION |= {
    "boxes": ([is_box], None),
    "astray": [text(1024)],
    "nonce": HEX32,
    "time": COUNT,
    "label": LABEL,
}
WORDS: dict[str, tuple[dict[str, Any], ...]] = {
    "call": (CALL,),
    "join": (JOIN,),
    "claim": ({"table": HASH, "boxes": [is_box]},),
    "attempt": (ATTEMPT,),
    "vote": (VOTE, VOTE | {"certificate": CERTIFICATE}),
    "ending": ({"rank": RANK, "reason": text(2000)},),
    "attestation": (ATTESTATION,),
}
LONG = ("claim", "attestation")


def decode_word(raw: bytes, kind: str) -> dict[str, Any]:
    """An object of a kind that is known from its key."""
    value = decode_json(raw, (64 if kind in LONG else 4) * 2**20)
    schemas = tuple({**SEAL, "kind": kind, **members} for members in WORDS[kind])
    need(conforms(value, schemas), "bad_json", "DS013", f"members of an object of kind {kind}")
    if kind == "attempt":
        both = (value["base"] is None) == (value["parent"] is None)
        need(both, "bad_json", "DS013", "a base without the hash of its manifest, or the other way round")
        below = value["base"] is None or value["base"] < value["version"]
        need(below, "bad_json", "DS013", "a base that is not below its version")
    if kind in LONG:
        need(len(value["boxes"] or []) <= 2**20, "bad_json", "DS100", "boxes")
    if kind == "vote":
        need(len(value["packs"]) <= 8192, "bad_json", "DS100", "packs of a version")
    return value
