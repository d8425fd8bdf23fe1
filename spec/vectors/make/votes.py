"""What several writers tell each other, good and bad: SPEC section 14.3."""

from __future__ import annotations

import json
from typing import Any

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
    }


def _bad() -> dict[str, tuple[str, str]]:
    good = {name: text for name, (_, text) in _good().items()}

    def put(name: str, member: str, value: Any) -> str:
        fields = json.loads(good[name])
        fields[member] = value
        return canonical_bytes(seal(fields)).decode("latin-1")

    return {
        "a run that climbs": (put("call", "run", "../x"), "bad_json"),
        "a run with a slash": (put("call", "run", "a/b"), "bad_json"),
        "a run too long": (put("call", "run", "x" * 201), "bad_json"),
        "a call of nobody": (put("call", "writers", 0), "bad_json"),
        "a call of too many": (put("call", "writers", 65537), "bad_json"),
        "a rank out of range": (put("join", "rank", 65536), "bad_json"),
        "a claim hash that climbs": (put("join", "claim", "../" * 21 + "x"), "bad_json"),
        "a box without axes": (put("claim", "boxes", [{"array": 0, "start": [], "size": []}]), "bad_json"),
        "a box of too many axes": (
            put("claim", "boxes", [{"array": 0, "start": [0] * 18, "size": [1] * 18}]),
            "bad_json",
        ),
        "a base without its hash": (put("attempt", "parent", None), "bad_json"),
        "a step that is no integer": (put("attempt", "step", "70"), "bad_json"),
        "a difference of 15 digits": (put("vote", "difference", "0" * 15), "bad_json"),
        "a member too many": (put("vote", "signature", "x"), "bad_json"),
        "a certificate that is null": (put("vote", "certificate", None), "bad_json"),
        "a reason too long": (put("ending", "reason", "x" * 2001), "bad_json"),
        "a newer format": (put("vote", "format", 2), "newer_format"),
        "a changed digit": (good["vote"].replace('"changed":3', '"changed":4'), "bad_hash"),
    }


def vectors() -> object:
    """Stored bytes -> kind; or the kind that was expected and an error code."""
    ok = [
        {"name": name, "text": text, "kind": json.loads(text)["kind"]} for name, (_, text) in _good().items()
    ]
    err = [
        {"name": name, "text": text, "kind": json.loads(text)["kind"], "code": code}
        for name, (text, code) in _bad().items()
    ]
    return {"ok": ok, "err": err}
