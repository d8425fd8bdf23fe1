"""JSON that is not what it seems: other spellings, other numbers, other encodings, too deep, too much."""

from __future__ import annotations

import json

from .attack import Attack, attack, record_bytes, record_with, respelled, sealed

NEWEST = 6
"""The slot of the newest version, which everybody reads."""

_NESTED = b'{"a":' + b"[" * 10**6 + b"]" * 10**6 + b"}"
_DIGITS = b'{"format":' + b"9" * 3_000_000 + b"}"
_KEYS = b"{" + b",".join(b'"%06x":0' % key for key in range(5_000)) + b"}"


def _replaced(old: bytes, new: bytes) -> Attack:
    return attack(
        f"json: {new[:24]!r} for {old[:24]!r}",
        record_bytes(NEWEST, lambda data: data.replace(old, new, 1)),
        "bad_json",
        "DS010",
    )


def _bytes(name: str, data: bytes, codes: str = "bad_json", rules: str = "DS010") -> Attack:
    return attack(f"json: {name}", record_bytes(NEWEST, lambda _: data), codes, rules)


def attacks() -> list[Attack]:
    """All of them."""
    return [
        _replaced(b'"slot":6', b'"slot":6.0'),
        _replaced(b'"slot":6', b'"slot":6e0'),
        _replaced(b'"slot":6', b'"slot":06'),
        _replaced(b'"slot":6', b'"slot":-6'.replace(b"-6", b"+6")),
        _replaced(b'"step":3', b'"step":-0'),
        _replaced(b'"step":3', b'"step":NaN'),
        _replaced(b'"step":3', b'"step":Infinity'),
        _replaced(b'"step":3', b'"step":-Infinity'),
        _replaced(b'"step":3', b'"step":1e400'),
        _replaced(b'"step":3', b'"step":9007199254740992'),
        _replaced(b'"step":3', b'"step":"\\ud800"'),
        _replaced(b'"sound"', b'"\\u0073ound"'),
        _replaced(b'"sound"', b'"so\\/und"'),
        _replaced(b'"sound"', b'"so\\u000aund"'),
        _replaced(b'"sound"', b'"so\x00und"'),
        _replaced(b'"sound"', b'"so\xffund"'),
        _replaced(b'"sound"', b'"so\xed\xa0\x80und"'),
        _replaced(b'"slot":6', b'"slot":6,"slot":6'),
        _replaced(b'"slot":6', b'"slot":5,"slot":6'),
        _replaced(b'"step":3', b'"step":3,"step":3'),
        _replaced(b'"kind":"delta"', b'"kind":"anchor","kind":"delta"'),
        _replaced(b"{", b"{ "),
        _bytes("nothing", b""),
        _bytes("null", b"null"),
        _bytes("a list", b"[]"),
        _bytes("no members", b"{}", "bad_hash", "DS011"),
        _bytes("a million deep", _NESTED),
        _bytes("three million digits", _DIGITS),
        _bytes("5,000 keys", _KEYS, "bad_hash", "DS011"),
        _bytes("beyond the limit", b" " * ((4 << 20) + 1), "too_large", "DS100"),
        attack(
            "json: a byte order mark",
            record_bytes(NEWEST, lambda data: b"\xef\xbb\xbf" + data),
            "bad_json",
            "DS010",
        ),
        attack(
            "json: UTF-16",
            record_bytes(NEWEST, lambda data: data.decode().encode("utf-16")),
            "bad_json",
            "DS010",
        ),
        attack("json: bytes behind it", record_bytes(NEWEST, lambda data: data + b"\n"), "bad_json", "DS010"),
        attack(
            "json: another object behind it",
            record_bytes(NEWEST, lambda data: data + data),
            "bad_json",
            "DS010",
        ),
        attack(
            "json: members out of order",
            respelled(
                NEWEST,
                lambda fields: json.dumps(dict(reversed(fields.items())), separators=(",", ":")).encode(),
            ),
            "bad_json",
            "DS010",
        ),
        attack(
            "json: no hash", respelled(NEWEST, lambda fields: _without(fields, "sha256")), "bad_hash", "DS011"
        ),
        attack("json: format 0", record_with(NEWEST, format=0), "bad_json", "DS013"),
        attack("json: format true", record_with(NEWEST, format=True), "bad_json", "DS013"),
        attack("json: format null", record_with(NEWEST, format=None), "bad_json", "DS013"),
        attack("json: format 2", record_with(NEWEST, format=2), "newer_format", "DS012"),
        attack("json: a member more", record_with(NEWEST, extra=1), "bad_json", "DS013"),
        attack("json: 17 deep", record_with(NEWEST, metadata={"step": _nested(15)}), "bad_json", "DS010"),
        attack("json: a list for text", record_with(NEWEST, digest=[[]] * 5_000), "bad_json", "DS013"),
        attack("json: 65 notes", record_with(NEWEST, metadata=_many(65)), "bad_json", "DS013"),
        attack(
            "json: a key that is not ASCII", record_with(NEWEST, metadata={"\u202e": 1}), "bad_json", "DS010"
        ),
        attack(
            "json: control characters in a key",
            record_with(NEWEST, metadata={"a\x1b[2J": 1}),
            "bad_json",
            "DS013",
        ),
        attack("json: true for a number", record_with(NEWEST, version=True), "bad_json", "DS013"),
        attack("json: text for a number", record_with(NEWEST, version="3"), "bad_json", "DS013"),
        attack("json: null for a certificate", respelled(NEWEST, _null_certificate), "bad_json", "DS013"),
    ]


def _without(fields: dict[str, object], name: str) -> bytes:
    return json.dumps(
        {key: value for key, value in fields.items() if key != name}, sort_keys=True, separators=(",", ":")
    ).encode()


def _nested(levels: int) -> object:
    value: object = 0
    for _ in range(levels):
        value = [value]
    return value


def _many(count: int) -> dict[str, int]:
    return {f"{key:x}": 0 for key in range(count)}


def _null_certificate(fields: dict[str, object]) -> bytes:
    statistics = fields["statistics"]
    assert isinstance(statistics, dict)
    return sealed({**fields, "statistics": {**statistics, "certificate": None}})
