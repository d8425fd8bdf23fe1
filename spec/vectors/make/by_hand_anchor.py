"""The objects of an anchor written field by field from SPEC.md, its chunks in an order of their own."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from spec import decoder
from spec.decoder.anchor import CRC32C
from spec.decoder.table import Array
from spec.vectors.make.objects import Objects, sha256

Fields = dict[str, Any]


def crc(data: bytes) -> bytes:
    """Data and its CRC-32C."""
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ CRC32C[(value ^ byte) & 0xFF]
    return data + (value ^ 0xFFFFFFFF).to_bytes(4, "little")


def chunk_of(array: Array, cell: list[int], stacked: decoder.U64) -> bytes:
    """A chunk as a shard holds it: at its full extent, with its checksum."""
    chunk, box = np.zeros(array.chunk, np.uint64), array.box(cell)
    chunk[tuple(slice(axis.stop - axis.start) for axis in box)] = stacked[box]
    return crc(decoder.stored(array, chunk))


def shard_of(array: Array, shape: tuple[int, ...], at: tuple[int, ...], stacked: decoder.U64) -> bytes:
    """A shard: the last chunk first, and its index in the order of the chunks."""
    per = [whole // step for whole, step in zip(shape, array.chunk, strict=True)]
    entries: dict[tuple[int, ...], tuple[int, int]] = {}
    data = b""
    for inside in reversed(list(product(*map(range, per)))):
        cell = [one * step + more for one, step, more in zip(at, per, inside, strict=True)]
        if any(one >= extent for one, extent in zip(cell, array.grid(), strict=True)):
            entries[inside] = (2**64 - 1, 2**64 - 1)
            continue
        stored = chunk_of(array, cell, stacked)
        entries[inside] = (len(data), len(stored))
        data += stored
    index = np.array([entries[inside] for inside in product(*map(range, per))], "<u8")
    return data + crc(index.tobytes())


def metadata_of(array: Array, shape: tuple[int, ...], *, short: bool) -> Fields:
    """A Zarr array; ``short``: in the shortest spelling there is, and else with all that may be added."""
    width = decoder.WIDTHS[array.dtype]
    little: Any = {"name": "bytes", "configuration": {"endian": "little"}}
    octets = little if width > 8 else ("bytes" if short else {"name": "bytes", "configuration": {}})
    check: Any = "crc32c" if short else {"name": "crc32c", "configuration": {}}
    types = {"BF16": "bfloat16", "F32": "float32", "F16": "float16", "U8": "uint8"}
    inner = {"chunk_shape": array.chunk, "codecs": [octets, check], "index_codecs": [little, check]}
    found: Fields = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": array.stacked(),
        "data_type": types[array.dtype],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
        "fill_value": 0,
        "attributes": {
            "deltastore": {"dtype": array.dtype, "pattern": array.pattern, "members": array.members}
        },
    }
    if short:
        return found | {
            "chunk_key_encoding": "default",
            "codecs": [{"name": "sharding_indexed", "configuration": inner}],
        }
    return found | {
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": [{"name": "sharding_indexed", "configuration": {**inner, "index_location": "end"}}],
        "storage_transformers": [],
        "dimension_names": [None] * len(array.chunk),
    }


def anchor_objects(
    table: decoder.Table,
    shards: Sequence[tuple[int, ...]],
    weights: list[decoder.U64],
    version: int,
    *,
    short: bool,
    sums: bool,
) -> Objects:
    """All objects by key but the inventory; ``shards``: the extents of a shard of each array."""
    own = {"format": 1, "table": table.sha256, "version": version}
    group = {"zarr_format": 3, "node_type": "group", "attributes": {"deltastore": own, "note": "by hand"}}
    held = {"zarr.json": json.dumps(group, indent=None if short else 2).encode()}
    chunks = b""
    for number, (array, shape, stacked) in enumerate(zip(table.arrays, shards, weights, strict=True)):
        path = f"array-{number:05}"
        held[f"{path}/zarr.json"] = json.dumps(metadata_of(array, shape, short=short)).encode()
        grid = [-(-extent // step) for extent, step in zip(array.stacked(), shape, strict=True)]
        for at in product(*map(range, grid)):
            held[f"{path}/c/" + "/".join(map(str, at))] = shard_of(array, shape, at, stacked)
        for chunk in range(math.prod(array.grid())):
            stored = chunk_of(array, array.cell(chunk), stacked)
            chunks += bytes.fromhex(sha256(stored))[:16]
    return held | ({"sums": chunks} if sums else {})
