"""SPEC 5: JSON objects in canonical form, their seal and their schemas."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

from spec.decoder.refusal import fail, need


def canonical(value: Any) -> bytes:
    """The canonical form of a value that `check_value` admits."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def check_value(value: Any, depth: int) -> None:
    """DS010: what SPEC 5 restricts JSON to: kinds of values, size of integers, ASCII keys, nesting."""
    if isinstance(value, int):
        need(abs(value) < 2**53, "bad_json", "DS010", "an integer is out of range")
    elif isinstance(value, dict | list):
        need(depth <= 16, "bad_json", "DS010", "nested more than 16 deep")
        keys = value if isinstance(value, dict) else []
        need(all(map(str.isascii, keys)), "bad_json", "DS010", "a key is not ASCII")
        for item in value.values() if isinstance(value, dict) else value:
            check_value(item, depth + 1)
    else:
        plain = value is None or isinstance(value, str)
        need(plain, "bad_json", "DS010", "a number is not an integer")


def parse_json(raw: bytes) -> Any:
    """A JSON value of any spelling; `ValueError` or `RecursionError` where Python finds none."""

    def refuse(spelling: str) -> float:
        raise ValueError(f"{spelling} is no JSON")

    return json.loads(raw.decode(), parse_constant=refuse)


def decode_json(raw: bytes, limit: int) -> dict[str, Any]:
    """A sealed object: DS100, DS010 (syntax), DS012, DS010 (form) and DS011, in this order."""
    need(len(raw) <= limit, "too_large", "DS100", "a JSON object above its limit")
    try:
        value = parse_json(raw)
    except (ValueError, RecursionError):
        fail("bad_json", "DS010", "not JSON in UTF-8")
    need(isinstance(value, dict), "bad_json", "DS010", "not a JSON object")
    newer = type(value.get("format")) is int and value["format"] > 1
    need(not newer, "newer_format", "DS012", "format above 1")
    check_value(value, 1)
    try:
        need(canonical(value) == raw, "bad_json", "DS010", "not in canonical form")
    except UnicodeEncodeError:
        fail("bad_json", "DS010", "a lone surrogate")
    body = hashlib.sha256(canonical({key: item for key, item in value.items() if key != "sha256"}))
    need(body.hexdigest() == value.get("sha256"), "bad_hash", "DS011", "the sha256 of a JSON object")
    return dict(value)


def conforms(value: Any, schema: Any) -> bool:
    """DS013. A schema is a dict (exactly these members), a one-item list (a list of such items), a tuple (one
    of these), a range of integers, a pattern of text, a type, a predicate or a literal.
    """
    if isinstance(schema, dict):
        same = isinstance(value, dict) and value.keys() == schema.keys()
        return same and all(conforms(value[key], item) for key, item in schema.items())
    if isinstance(schema, list):
        return isinstance(value, list) and all(conforms(item, schema[0]) for item in value)
    if isinstance(schema, tuple):
        return any(conforms(value, item) for item in schema)
    if isinstance(schema, range):
        return type(value) is int and value in schema
    if isinstance(schema, re.Pattern):
        return isinstance(value, str) and schema.fullmatch(value) is not None
    if isinstance(schema, type):
        return type(value) is schema
    return bool(schema(value)) if callable(schema) else type(value) is type(schema) and value == schema


def sequence(*schemas: Any) -> Callable[[Any], bool]:
    """A schema: a list of as many items, each of its own schema."""
    return lambda value: (
        isinstance(value, list) and len(value) == len(schemas) and all(map(conforms, value, schemas))
    )


def text(longest: int) -> re.Pattern[str]:
    """A schema: text of at most so many code points."""
    return re.compile(f"(?s:.{{0,{longest}}})")


COUNT, HASH, HEX32 = range(2**53), re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{32}")
HEX16 = re.compile("[0-9a-f]{16}")
SEAL = {"format": 1, "sha256": HASH}
