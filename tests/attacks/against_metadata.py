"""The metadata of anchors: codecs that inflate, grids without end, shapes and types of others."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from .against_anchors import SLOT, resealed_anchor
from .attack import Attack
from .resealing import Fields, Rewriting, prefix_of


def _metadata(
    name: str, change: Callable[[Fields], object], *, group: bool = False, rules: str = "DS071"
) -> Attack:
    """Other metadata of the group, or of the array of layers."""

    def make(rewriting: Rewriting) -> None:
        key = "zarr.json" if group else "array-00001/zarr.json"
        found = json.loads(rewriting.objects[prefix_of(rewriting.records[SLOT]) + key])
        changed = change(found)
        data = changed if isinstance(changed, bytes) else json.dumps(found).encode()
        rewriting.replace_in_anchor(SLOT, key, data)

    return resealed_anchor(f"metadata: {name}", make, "bad_anchor", rules)


def _codecs(name: str, codecs: list[Any]) -> Attack:
    return _metadata(f"codecs {name}", lambda found: found.update(codecs=codecs))


def _inner(name: str, change: Callable[[Fields], object]) -> Attack:
    return _metadata(f"sharding with {name}", lambda found: change(found["codecs"][0]["configuration"]))


def _member(*path: Any, value: Any) -> Callable[[Fields], object]:
    def change(found: Any) -> None:
        *above, last = path
        for step in above:
            found = found[step]
        found[last] = value

    return change


def attacks() -> list[Attack]:
    """All of them."""
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    crc = {"name": "crc32c"}
    return [
        _codecs("none", []),
        _codecs("gzip", [little, {"name": "gzip", "configuration": {"level": 9}}]),
        _codecs("zstd", [little, {"name": "zstd", "configuration": {"level": 22, "checksum": False}}]),
        _codecs("blosc", [little, {"name": "blosc", "configuration": {"cname": "zstd"}}]),
        _codecs("transposed", [{"name": "transpose", "configuration": {"order": [2, 1, 0]}}]),
        _codecs("without checksums", [little]),
        _codecs("a list of lists", [[[[]]]]),
        _inner("zstd inside", _member("codecs", value=[little, {"name": "zstd", "configuration": {}}, crc])),
        _inner(
            "gzip on its index",
            _member("index_codecs", value=[little, {"name": "gzip", "configuration": {}}, crc]),
        ),
        _inner(
            "itself inside",
            lambda found: found["codecs"].insert(
                0, {"name": "sharding_indexed", "configuration": copy.deepcopy(found)}
            ),
        ),
        _inner("its index in front", _member("index_location", value="start")),
        _inner("big-endian elements", _member("codecs", 0, "configuration", "endian", value="big")),
        _inner("chunks of 2^53", _member("chunk_shape", value=[2**53 - 1] * 3)),
        _inner("chunks of its own", _member("chunk_shape", value=[1, 1, 1])),
        _metadata(
            "shards of 2^80",
            _member("chunk_grid", "configuration", "chunk_shape", value=[2**80, 4 * 2**40, 16]),
            rules="DS071 DS100 DS072",
        ),
        _metadata(
            "shards of nothing", _member("chunk_grid", "configuration", "chunk_shape", value=[0, 0, 0])
        ),
        _metadata("shards of -4", _member("chunk_grid", "configuration", "chunk_shape", value=[1, -4, 16])),
        _metadata(
            "shards of 1.0", _member("chunk_grid", "configuration", "chunk_shape", value=[1.0, 4.0, 16.0])
        ),
        _metadata(
            "shards of true", _member("chunk_grid", "configuration", "chunk_shape", value=[True, 4, 16])
        ),
        _metadata("a grid of its own", _member("chunk_grid", "name", value="rectangular")),
        _metadata("another shape", _member("shape", value=[3, 8, 17])),
        _metadata("a shape of 2^60", _member("shape", value=[2**60, 2**60, 2**60])),
        _metadata("another type", _member("data_type", value="float64")),
        _metadata("the other order of bytes", _member("data_type", value=">u2")),
        _metadata("transformers of its storage", _member("storage_transformers", value=[{"name": "x"}])),
        _metadata(
            "keys of another kind",
            _member("chunk_key_encoding", value={"name": "v2", "configuration": {"separator": "."}}),
        ),
        _metadata("Zarr 2", _member("zarr_format", value=2)),
        _metadata("a group for an array", _member("node_type", value="group")),
        _metadata("no attributes", _member("attributes", value={})),
        _metadata(
            "attributes of another array", _member("attributes", "deltastore", "pattern", value="other")
        ),
        _metadata("a million deep", lambda _: b"[" * 10**6),
        _metadata("three million digits", lambda _: b'{"shape":' + b"9" * 3_000_000 + b"}"),
        _metadata("no JSON", lambda _: b"\xff\xfe"),
        _metadata("nothing", lambda _: b""),
        _metadata("a list", lambda _: b"[]"),
        _metadata(
            "the group of another table",
            _member("attributes", "deltastore", "table", value="0" * 64),
            group=True,
        ),
        _metadata(
            "the group of a newer format", _member("attributes", "deltastore", "format", value=2), group=True
        ),
        _metadata("the group as an array", _member("node_type", value="array"), group=True),
    ]
