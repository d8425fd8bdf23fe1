"""The ``zarr.json`` objects of an anchor, written and checked (SPEC section "Anchors")."""

from __future__ import annotations

import json
import math
from typing import Any, Final

from deltastore.anchors.sharding import ShardGrid
from deltastore.errors import CorruptError
from deltastore.format.canonical import no_number
from deltastore.format.limits import FORMAT, SHARD_PLACES
from deltastore.format.table import Array, TensorTable

__all__ = ["METADATA_KEY", "array_metadata", "check_group", "group_metadata", "metadata_bytes", "read_shards"]

METADATA_KEY: Final = "zarr.json"
ATTRIBUTE: Final = "deltastore"

_NATIVE: Final = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
}
"""Element types that Zarr has; the others are stored as unsigned integers of their width."""


_LITTLE: Final = {"name": "bytes", "configuration": {"endian": "little"}}
"""The first codec of a chunk. Single bytes have no order, so it may be left out where elements are such."""


def group_metadata(table: TensorTable, version: int) -> dict[str, Any]:
    """The group's metadata: which table and version it holds."""
    return {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {ATTRIBUTE: {"format": FORMAT, "table": table.sha256, "version": version}},
    }


def array_metadata(array: Array, shards: ShardGrid) -> dict[str, Any]:
    """An array's metadata: one Zarr chunk per shard, one inner chunk per chunk of the table's grid."""
    octets = _LITTLE if array.element.itemsize > 1 else {"name": "bytes"}
    inner = {
        "chunk_shape": list(array.chunk),
        "codecs": [octets, {"name": "crc32c"}],
        "index_codecs": [_LITTLE, {"name": "crc32c"}],
        "index_location": "end",
    }
    data_type = _NATIVE.get(array.dtype, f"uint{array.element.bits}")
    members = [[list(indexes) for indexes in box] for box in array.members]
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(array.grid.extent),
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(shards.shape)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0.0 if "float" in data_type else 0,
        "codecs": [{"name": "sharding_indexed", "configuration": inner}],
        "attributes": {ATTRIBUTE: {"dtype": array.dtype, "pattern": array.pattern, "members": members}},
    }


def metadata_bytes(metadata: dict[str, Any]) -> bytes:
    """The object to store: sorted JSON, so that equal metadata has equal bytes."""
    return json.dumps(metadata, sort_keys=True, indent=1).encode("ascii")


def check_group(data: bytes, table: TensorTable, version: int, where: str) -> None:
    """Raise ``CorruptError("bad_anchor")`` unless ``data`` is the group of this table and version."""
    found = _parse(data, where)
    wanted = group_metadata(table, version)
    _agree(found, {key: wanted[key] for key in ("zarr_format", "node_type")}, where)
    _agree({ATTRIBUTE: _attributes(found)}, wanted["attributes"], where)


def read_shards(data: bytes, array: Array, where: str) -> ShardGrid:
    """The shards of an array, from its metadata, which must otherwise be what the table asks for.

    Only the number of chunks per shard is the writer's choice. No codec that could inflate is accepted.
    Raises ``CorruptError("bad_anchor")``.
    """
    found = _parse(data, where)
    shards = ShardGrid(array.grid, _per_shard(found, array, where))
    wanted = array_metadata(array, shards)
    attributes = wanted.pop("attributes")
    del wanted["fill_value"]
    _agree(_plain(found, array), wanted, where)
    _agree({ATTRIBUTE: _attributes(found)}, attributes, where)
    if found.get("storage_transformers", []) != []:
        raise _bad(where, "it has storage transformers")
    return shards


def _parse(data: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(data.decode("utf-8"), parse_constant=no_number)
    except (ValueError, RecursionError):
        raise _bad(where, "it is not JSON") from None
    if not isinstance(found, dict):
        raise _bad(where, "it is not a JSON object")
    return found


def _per_shard(found: dict[str, Any], array: Array, where: str) -> tuple[int, ...]:
    grid = found.get("chunk_grid")
    configuration = grid.get("configuration") if isinstance(grid, dict) else None
    shape = configuration.get("chunk_shape") if isinstance(configuration, dict) else None
    if not isinstance(shape, list) or len(shape) != len(array.chunk):
        raise _bad(where, "it has no regular chunk grid over the array's axes")
    if not all(
        type(whole) is int and whole > 0 and whole % part == 0
        for whole, part in zip(shape, array.chunk, strict=True)
    ):
        raise _bad(where, f"its shards do not consist of whole chunks of {list(array.chunk)}")
    per_shard = tuple(whole // part for whole, part in zip(shape, array.chunk, strict=True))
    if math.prod(per_shard) > SHARD_PLACES:
        raise _bad(where, f"its shards have places for more than {SHARD_PLACES} chunks", rule="DS100")
    return per_shard


def _attributes(found: dict[str, Any]) -> Any:
    attributes = found.get("attributes")
    return attributes.get(ATTRIBUTE) if isinstance(attributes, dict) else None


def _plain(found: dict[str, Any], array: Array) -> dict[str, Any]:
    """The metadata with every extension in one form and its defaults filled in."""
    plain = dict(found)
    codecs = found.get("codecs")
    plain["codecs"] = [_plain_codec(codec, array) for codec in codecs] if isinstance(codecs, list) else codecs
    plain["chunk_key_encoding"] = {
        "configuration": {"separator": "/"},
        **_long(found.get("chunk_key_encoding")),
    }
    return plain


def _plain_codec(codec: Any, array: Array) -> dict[str, Any]:
    long = _long(codec)
    given = long.get("configuration")
    if not isinstance(given, dict):
        return long
    inner = {"index_location": "end", **given}
    for name in ("codecs", "index_codecs"):
        if isinstance(inner.get(name), list):
            inner[name] = [_long(part) for part in inner[name]]
    if array.element.itemsize == 1 and isinstance(inner.get("codecs"), list):
        inner["codecs"] = [{"name": "bytes"} if part == _LITTLE else part for part in inner["codecs"]]
    return {**long, "configuration": inner}


def _long(extension: Any) -> dict[str, Any]:
    """``"crc32c"`` and ``{"name": "crc32c", "configuration": {}}`` are both ``{"name": "crc32c"}``."""
    if isinstance(extension, str):
        return {"name": extension}
    if not isinstance(extension, dict):
        return {}
    return {key: value for key, value in extension.items() if value != {}}


def _agree(found: dict[str, Any], wanted: dict[str, Any], where: str) -> None:
    for key, value in wanted.items():
        if _written(found.get(key)) != _written(value):
            raise _bad(where, f"its {key} is not what the tensor table asks for")


def _written(value: Any) -> str | None:
    """A value as text: true and 1.0 are not 1 there, as they are in Python. None where it is too deep."""
    try:
        return json.dumps(value, sort_keys=True)
    except RecursionError:
        return None


def _bad(where: str, problem: str, *, rule: str = "DS071") -> CorruptError:
    message = f"{where} is not the metadata of this anchor: {problem}; take another version"
    return CorruptError("bad_anchor", message, where=where, rule=rule)
