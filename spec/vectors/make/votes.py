"""What writers tell each other, and readers whoever asks, good and bad: SPEC sections 14.3 and 15.3."""

from __future__ import annotations

import json
from typing import Any

from deltastore.format.attestation import Attestation
from deltastore.format.canonical import canonical_bytes, seal
from deltastore.format.sealed import Sealed
from deltastore.format.votes import Attempt, Call, Claim, Ending, Join, Vote

Fields = dict[str, Any]

_HASH = "0123456789abcdef" * 4
_NONCE = "0f" * 16
_PACK: Fields = {
    "sha256": _HASH,
    "bytes": 200,
    "index_sha256": _HASH,
    "rows": 1,
    "count": 3,
    "slabs": [0, 0],
}

_ATTESTATION: Fields = {
    "stream": "ab" * 16,
    "table": _HASH,
    "version": 7,
    "record": _HASH,
    "boxes": None,
    "digests": ["00000000000000ff"],
    "astray": [],
    "nonce": _NONCE,
    "time": 1_750_000_000_000,
    "label": "engine 3",
}


def _of(kind: type[Sealed], **fields: Any) -> str:
    name = kind.model_fields["kind"].default
    text = canonical_bytes(seal({"format": 1, "kind": name, **fields}))
    return kind.model_validate_json(text).to_bytes().decode("latin-1")


def _good() -> dict[str, tuple[type[Sealed], str]]:
    attempt: Fields = {
        "epoch": 2,
        "epoch_nonce": _NONCE,
        "attempt": 0,
        "nonce": "5a" * 16,
        "version": 7,
        "base": 6,
        "parent": _HASH,
        "table": _HASH,
        "step": 70,
    }
    vote: Fields = {
        "attempt": _HASH,
        "rank": 1,
        "nonce": _NONCE,
        "epoch_nonce": _NONCE,
        "parent": _HASH,
        "step": 70,
        "claim": _HASH,
        "packs": [_PACK],
        "changed": 3,
        "difference": "00000000000000ff",
        "detector": "snapshot",
    }
    found = {"inverted": 90, "uncertain": 2, "blocks": 1, "settled": 1, "unexplained": 0}
    box = {"array": 0, "start": [0, 0, 8], "size": [2, 4, 8]}
    return {
        "call": (Call, _of(Call, run="job-17.3", call=0, nonce=_NONCE, writers=4, table=_HASH)),
        "join": (
            Join,
            _of(Join, call=_HASH, rank=3, nonce=_NONCE, label="host 3", claim=_HASH, digest="0" * 16),
        ),
        "claim": (Claim, _of(Claim, table=_HASH, boxes=[box])),
        "a claim on nothing": (Claim, _of(Claim, table=_HASH, boxes=[])),
        "attempt": (Attempt, _of(Attempt, **attempt)),
        "an attempt at a version stored whole": (
            Attempt,
            _of(Attempt, **{**attempt, "base": None, "parent": None, "step": None}),
        ),
        "vote": (Vote, _of(Vote, **vote)),
        "a vote by a writer without a copy": (Vote, _of(Vote, **{**vote, "certificate": found})),
        "a vote without packs": (Vote, _of(Vote, **{**vote, "packs": [], "changed": 0, "step": None})),
        "ending": (Ending, _of(Ending, rank=2, reason="the disk is full")),
        "attestation": (Attestation, _of(Attestation, **_ATTESTATION)),
        "a claim on no elements": (
            Claim,
            _of(Claim, table=_HASH, boxes=[{"array": 0, "start": [0], "size": [0]}]),
        ),
        "a vote whose certificate cannot be": (
            Vote,
            _of(Vote, **{**vote, "certificate": {**found, "uncertain": 91}}),
        ),
        "an attestation of a part": (
            Attestation,
            _of(Attestation, **{**_ATTESTATION, "boxes": [box], "astray": ["head"]}),
        ),
    }


def _bad() -> dict[str, tuple[str, str, str]]:
    good = {name: text for name, (_, text) in _good().items()}

    def put(name: str, member: str, value: Any) -> str:
        fields = json.loads(good[name])
        fields[member] = value
        return canonical_bytes(seal(fields)).decode("latin-1")

    schema = {
        "a run that climbs": put("call", "run", "../x"),
        "a run with a slash": put("call", "run", "a/b"),
        "an empty run": put("call", "run", ""),
        "a run too long": put("call", "run", "x" * 201),
        "a call of nobody": put("call", "writers", 0),
        "a call of too many": put("call", "writers", 65537),
        "a rank out of range": put("join", "rank", 65536),
        "a negative rank": put("join", "rank", -1),
        "a label of 201 characters": put("join", "label", "x" * 201),
        "a claim hash that climbs": put("join", "claim", "../" * 21 + "x"),
        "a box without axes": put("claim", "boxes", [{"array": 0, "start": [], "size": []}]),
        "a box of too many axes": put("claim", "boxes", [{"array": 0, "start": [0] * 18, "size": [1] * 18}]),
        "a box over two and three axes": put(
            "claim", "boxes", [{"array": 0, "start": [0, 0], "size": [1] * 3}]
        ),
        "a box without its array": put("claim", "boxes", [{"start": [0], "size": [1]}]),
        "a base without its hash": put("attempt", "parent", None),
        "a hash without its base": put("attempt", "base", None),
        "a base without room below its version": put("attempt", "base", 7),
        "a step that is no integer": put("attempt", "step", "70"),
        "a difference of 15 digits": put("vote", "difference", "0" * 15),
        "a pack with its slabs backwards": put("vote", "packs", [{**_PACK, "slabs": [1, 0]}]),
        "a member too many": put("vote", "signature", "x"),
        "a certificate that is null": put("vote", "certificate", None),
        "a reason too long": put("ending", "reason", "x" * 2001),
        "an attestation without its record": put("attestation", "record", None),
        "a name of 1025 characters": put("attestation", "astray", ["n" * 1025]),
        "boxes of an attestation that are no list": put("attestation", "boxes", {}),
        "a digest of a chunk of 17 digits": put("attestation", "digests", ["0" * 17]),
        "the kind of another word": put("ending", "kind", "vote"),
    }
    return {name: (text, "bad_json", "DS013") for name, text in schema.items()} | {
        "a newer format": (put("vote", "format", 2), "newer_format", "DS012"),
        "a changed digit": (good["vote"].replace('"changed":3', '"changed":4'), "bad_hash", "DS011"),
        "a space": (good["ending"].replace(":", ": ", 1), "bad_json", "DS010"),
    }


def vectors() -> object:
    """Stored bytes -> kind; or the kind that was expected and what is refused."""
    ok = [
        {"name": name, "text": text, "kind": json.loads(text)["kind"]} for name, (_, text) in _good().items()
    ]
    kinds = {"the kind of another word": "ending"}
    err = [
        {
            "name": name,
            "text": text,
            "kind": kinds.get(name, json.loads(text.replace(": ", ":"))["kind"]),
            "code": code,
            "check": check,
        }
        for name, (text, code, check) in _bad().items()
    ]
    return {"ok": ok, "err": err}
