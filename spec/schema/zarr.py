"""The schemas of an anchor's ``zarr.json`` objects: what SPEC section 13 asks of groups and arrays."""

from __future__ import annotations

from typing import Any

from deltastore.format.dtypes import DTYPES
from deltastore.format.limits import CHUNK_ELEMENTS, MAX_RANK

Schema = dict[str, Any]

_COUNT: Schema = {"type": "integer", "minimum": 0}
_EXTENTS: Schema = {"type": "array", "items": _COUNT, "minItems": 1, "maxItems": MAX_RANK + 1}
_CHUNK: Schema = {**_EXTENTS, "items": {"type": "integer", "minimum": 1, "maximum": CHUNK_ELEMENTS}}
_SHARD: Schema = {**_EXTENTS, "items": {"type": "integer", "minimum": 1}}


def _object(required: Schema, *, more: bool = False, optional: Schema | None = None) -> Schema:
    """An object with these members, and no others unless there may be ``more``."""
    found: Schema = {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": [*required],
    }
    return found if more else {**found, "additionalProperties": False}


def _extension(name: str, configuration: Schema | None = None, *, spare: bool = True) -> Schema:
    """A Zarr extension; its name alone will do where its configuration may be left out (``spare``)."""
    whole = _object(
        {"name": {"const": name}, **({} if spare else {"configuration": configuration})},
        optional={"configuration": configuration or {"const": {}}} if spare else None,
    )
    return {"anyOf": [{"const": name}, whole]} if spare else whole


_LITTLE = _extension("bytes", _object({"endian": {"const": "little"}}), spare=False)
_CRC = _extension("crc32c")


def _pair(first: Schema) -> Schema:
    """A codec, and the checksum behind it."""
    return {"type": "array", "prefixItems": [first, _CRC], "items": False, "minItems": 2}


_SHARDING = _object(
    {
        "chunk_shape": _CHUNK,
        "codecs": _pair({"anyOf": [_LITTLE, _extension("bytes")]}),
        "index_codecs": _pair(_LITTLE),
    },
    optional={"index_location": {"const": "end"}},
)
_ARRAY_ATTRIBUTE = _object(
    {
        "dtype": {"enum": sorted(DTYPES)},
        "pattern": {"type": "string"},
        "members": {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": _COUNT}}},
    }
)
_GROUP_ATTRIBUTE = _object(
    {
        "format": {"const": 1},
        "table": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "version": {**_COUNT, "maximum": 2**53 - 1},
    }
)
_TYPES = ["bfloat16", "float16", "float32", "float64"]
_TYPES += [f"{sign}{width}" for sign in ("int", "uint") for width in (8, 16, 32, 64)]


def _attributes(own: Schema) -> Schema:
    return _object({"deltastore": own}, more=True)


GROUP: Schema = _object(
    {
        "zarr_format": {"const": 3},
        "node_type": {"const": "group"},
        "attributes": _attributes(_GROUP_ATTRIBUTE),
    },
    more=True,
)
ARRAY: Schema = _object(
    {
        "zarr_format": {"const": 3},
        "node_type": {"const": "array"},
        "shape": _EXTENTS,
        "data_type": {"enum": _TYPES},
        "chunk_grid": _object(
            {"name": {"const": "regular"}, "configuration": _object({"chunk_shape": _SHARD})}
        ),
        "chunk_key_encoding": _extension(
            "default", {"anyOf": [{"const": {}}, _object({"separator": {"const": "/"}})]}
        ),
        "codecs": {
            "type": "array",
            "prefixItems": [_extension("sharding_indexed", _SHARDING, spare=False)],
            "items": False,
            "minItems": 1,
        },
        "attributes": _attributes(_ARRAY_ATTRIBUTE),
    },
    more=True,
    optional={"storage_transformers": {"const": []}},
)
