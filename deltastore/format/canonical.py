"""Canonical JSON and the seal every JSON object carries (SPEC section "JSON objects").

The stored bytes of an object are exactly its canonical form, so equal values have equal bytes, duplicate
keys and odd spellings cannot hide, and a hash over the bytes is a hash over the value.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from deltastore.errors import CorruptError, InputError, UnsupportedError
from deltastore.format.limits import FORMAT, MAX_DEPTH, MAX_INTEGER

__all__ = ["canonical_bytes", "no_number", "parse_canonical", "seal", "sha256_hex", "written"]

JsonObject = dict[str, Any]


def sha256_hex(data: bytes | bytearray | memoryview) -> str:
    """Lower-case hexadecimal SHA-256."""
    return hashlib.sha256(data).hexdigest()


def canonical_bytes(value: object) -> bytes:
    """The canonical form: sorted keys, no spaces, UTF-8, shortest escapes, integers only.

    Raises ``InputError("bad_argument")`` for what the form cannot hold: a float, an integer beyond
    +-(2**53 - 1), a lone surrogate, a key that is not ASCII text, or more than ``MAX_DEPTH`` levels.
    """
    _check(value)
    return written(value)


def written(value: object) -> bytes:
    """The canonical form of a value that is known to have one, as far as its text does."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError("bad_argument", f"text that is not valid Unicode: {error.reason}") from None


def _check(value: object, depth: int = 0) -> None:
    if not isinstance(value, dict | list | tuple):
        _check_scalar(value)
        return
    if depth == MAX_DEPTH:
        raise InputError("bad_argument", f"JSON nested deeper than {MAX_DEPTH} levels")
    for key in value if isinstance(value, dict) else ():
        if not isinstance(key, str) or not key.isascii():
            raise InputError("bad_argument", f"JSON keys are ASCII text, not {key!r:.80}")
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list | tuple):
            _check(item, depth + 1)
        else:
            _check_scalar(item)


def _check_scalar(value: object) -> None:
    if isinstance(value, int):
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise InputError("bad_argument", "an integer beyond +-(2**53 - 1): write it as text")
    elif not isinstance(value, str) and value is not None:
        problem = f"a {type(value).__name__} has no canonical JSON form: write it as text"
        raise InputError("bad_argument", problem)


def seal(fields: JsonObject) -> JsonObject:
    """A copy of ``fields`` with ``sha256`` set to the hash of the canonical form without it."""
    body = _body(fields)
    return {**body, "sha256": sha256_hex(canonical_bytes(body))}


def _body(fields: JsonObject) -> JsonObject:
    return {key: value for key, value in fields.items() if key != "sha256"}


def parse_canonical(data: bytes, where: str) -> JsonObject:
    """The object in ``data``, which must be in canonical form and carry its own right ``sha256``.

    Raises ``CorruptError`` with code ``bad_json`` or ``bad_hash``, and ``UnsupportedError("newer_format")``
    before anything else is judged; ``where`` names the object.
    """
    value = _load(data, where)
    if not isinstance(value, dict):
        raise CorruptError("bad_json", f"{where} is not a JSON object", where=where, rule="DS010")
    said = value.get("format")
    if isinstance(said, int) and said > FORMAT:
        raise UnsupportedError(
            "newer_format",
            f"{where} is of format version {said}, this release reads up to {FORMAT}: upgrade deltastore",
            where=where,
            rule="DS012",
        )
    try:
        canonical = canonical_bytes(value)
    except InputError as error:
        message = f"{where} is not canonical JSON: {error}"
        raise CorruptError("bad_json", message, where=where, rule="DS010") from None
    if canonical != data:
        raise CorruptError("bad_json", f"{where} is not in canonical form", where=where, rule="DS010")
    if sha256_hex(written(_body(value))) != value.get("sha256"):
        raise CorruptError("bad_hash", f"{where} does not match its own sha256", where=where, rule="DS011")
    return value


def no_number(spelling: str) -> float:
    """For ``parse_constant`` of ``json``, which takes NaN and infinities for JSON: ``ValueError``."""
    raise ValueError(f"{spelling} is no JSON")


def _load(data: bytes, where: str) -> object:
    try:
        return json.loads(data.decode("utf-8"), parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        reason = type(error).__name__ if isinstance(error, RecursionError) else str(error)
        raise CorruptError("bad_json", f"{where} is not JSON: {reason}", where=where, rule="DS010") from None
