"""The schemas of the vector files, and of what ``spec.conformance`` asks and is answered."""

from __future__ import annotations

from typing import Any

from deltastore.errors import CODES
from deltastore.format.dtypes import DTYPES
from deltastore.validate.checks import CHECKS

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_HEX: Schema = {"type": "string", "pattern": "^([0-9a-f]{2})*$"}
_HASH: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_DIGEST: Schema = {"type": "string", "pattern": "^[0-9a-f]{16}$"}
_DTYPE: Schema = {"enum": sorted(DTYPES)}
_CODE: Schema = {"enum": sorted(CODES)}
_CHECK: Schema = {"enum": [*CHECKS, None]}
_CHECKS: Schema = {"type": "array", "items": {"enum": [*CHECKS]}, "minItems": 2, "uniqueItems": True}
_VERSION: Schema = {"type": ["integer", "null"], "minimum": 0}
_ROWS: Schema = {"type": "array", "items": {"type": "array"}}
_FILLED: Schema = {
    "type": "object",
    "properties": {"fill": _HEX, "except": _ROWS},
    "required": ["fill", "except"],
    "additionalProperties": False,
}


def _object(**members: Schema) -> Schema:
    """Exactly these members."""
    return {
        "type": "object",
        "properties": members,
        "required": sorted(members),
        "additionalProperties": False,
    }


def _any_of(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": 1}


def _judged(given: Schema, expected: Schema) -> Schema:
    """A file of good rows and bad rows."""
    good = _object(name=_TEXT, **given, **expected)
    bad = _object(name=_TEXT, **given, code=_CODE, check=_CHECK)
    also = {**bad, "properties": {**bad["properties"], "checks": _CHECKS}}
    return _object(ok=_list(good), err=_list(also))


_PATCH: Schema = {"dtype": _DTYPE, "elements": _COUNT, "encoding": _COUNT, "patch": _HEX}
_STORED: Schema = {"text": _TEXT}
_EDIT = _any_of(
    _object(key=_TEXT, remove={"const": True}),
    _object(key=_TEXT, hex=_HEX),
    _object(key=_TEXT, text=_TEXT),
    _object(key=_TEXT, copy=_TEXT),
    _object(key=_TEXT, zeros=_COUNT),
    _object(key=_TEXT, splice=_ROWS),
    _object(key=_TEXT, link=_TEXT),
    _object(key=_TEXT, pipe={"const": True}),
    _object(key=_TEXT, folder={"const": True}),
)
_TENSOR = _any_of(
    _object(dtype=_DTYPE, shape={"type": "array", "items": _COUNT}, bits=_HEX),
    _object(dtype=_DTYPE, shape={"type": "array", "items": _COUNT}, sha256=_HASH),
)

FILES: dict[str, Schema] = {
    "names.json": _list(_object(name=_TEXT, pattern=_TEXT, index={"type": "array", "items": _COUNT})),
    "canonical.json": _judged({"json": _TEXT}, {"canonical": _TEXT, "sha256": _HASH}),
    "table.json": _judged(_STORED, {"tensors": _ROWS, "chunks": _ROWS, "slabs": _ROWS}),
    "digest.json": _list(_object(tensor=_TEXT, dtype=_DTYPE, first=_COUNT, bits=_HEX, digest=_DIGEST)),
    "patch.json": _judged({**_PATCH, "base": _HEX}, {"result": _HEX, "count": _COUNT}),
    "large.json": _judged({**_PATCH, "base": _FILLED}, {"result": _FILLED, "count": _COUNT}),
    "pack.json": _judged({"table": _TEXT, "pack": _HEX}, {"sha256": _HASH, "rows": _ROWS}),
    "record.json": _judged({**_STORED, "slot": _COUNT}, {"kind": _TEXT}),
    "inventory.json": _judged(_STORED, {"objects": _COUNT, "bytes": _COUNT}),
    "votes.json": _judged({**_STORED, "kind": _TEXT}, {}),
    "layout.json": _judged(_STORED, {"memory": {"type": "object"}}),
    "broken.json": _list(
        _object(
            name=_TEXT,
            base=_TEXT,
            edits=_list(_EDIT),
            code=_CODE,
            check=_CHECK,
            where=_TEXT,
            level={"enum": ["structure", "content", "deep"]},
            version=_VERSION,
        )
    ),
    "edited.json": _list(
        _object(name=_TEXT, base=_TEXT, edits=_list(_EDIT), versions=_COUNT, version=_COUNT, digest=_DIGEST)
    ),
    "streams": {
        "type": "object",
        "properties": {
            "release": _TEXT,
            "versions": {
                "type": "object",
                "patternProperties": {
                    "^[0-9]+$": _object(
                        digest=_DIGEST, tensors={"type": "object", "additionalProperties": _TENSOR}
                    )
                },
                "additionalProperties": False,
            },
        },
        "required": ["versions"],
        "additionalProperties": False,
    },
}

_OPERATIONS: dict[str, Schema] = {
    "names": {"name": _TEXT},
    "canonical": {"json": _HEX},
    "table": {"object": _HEX},
    "digest": {"tensor": _TEXT, "dtype": _DTYPE, "first": _COUNT, "bits": _HEX},
    "patch": {**_PATCH, "base": _HEX},
    "encode": {"dtype": _DTYPE, "elements": _COUNT, "base": _HEX, "result": _HEX},
    "pack": {"table": _HEX, "pack": _HEX},
    "record": {"slot": _COUNT, "object": _HEX},
    "inventory": {"object": _HEX},
    "word": {"kind": _TEXT, "object": _HEX},
    "layout": {"object": _HEX},
    "stream": {"path": _TEXT, "version": _VERSION},
    "check": {"path": _TEXT},
}

_ERROR: Schema = {
    "type": "object",
    "properties": {"code": _CODE, "check": {"enum": list(CHECKS)}, "where": _TEXT, "message": _TEXT},
    "required": ["code"],
    "additionalProperties": False,
}

VECTORS: Schema = {"$defs": FILES}
"""By the name of the file; ``streams`` is that of the files beside the streams."""

CONFORMANCE: Schema = {
    "$defs": {
        "request": _any_of(
            *(_object(id=_COUNT, op={"const": op}, **members) for op, members in _OPERATIONS.items())
        ),
        "reply": _any_of(
            _object(id=_COUNT, ok={"type": "object"}),
            _object(id=_COUNT, error=_ERROR),
            _object(id=_COUNT, unsupported={"const": True}),
        ),
    }
}
