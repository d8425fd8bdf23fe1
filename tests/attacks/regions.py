"""What the bytes of an object are: tokens of JSON, fields of a pack, chunks of a shard."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from deltastore.format.dtypes import DTYPES

from .resealing import Objects, prefix_of, records_of

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9.]+|true|false|null|[{}\[\]:,]')
_HEADER = (
    ("magic", 8),
    ("format", 2),
    ("flags", 2),
    ("rows", 4),
    ("version", 8),
    ("nonce", 16),
    ("body", 8),
    ("reserved", 16),
)
_ROW = (
    ("array", 4),
    ("chunk", 4),
    ("length", 4),
    ("count", 4),
    ("encoding", 4),
    ("difference", 8),
    ("check", 16),
)
_RUN = (("width", 1), ("low bits", 1), ("reserved", 2), ("count", 4))


class Region(NamedTuple):
    """Some bytes of an object, and what they are."""

    what: str
    key: str
    start: int
    end: int


def regions_of(objects: Objects) -> dict[str, list[Region]]:
    """Every byte of every named object of a sound stream, by the kind of its region."""
    found: dict[str, list[Region]] = {}
    for region in _regions(objects):
        if region.end > region.start:
            found.setdefault(region.what, []).append(region)
    return found


def _regions(objects: Objects) -> Iterator[Region]:
    records = records_of(objects)
    tables: dict[str, dict[str, Any]] = {}
    for key, data in objects.items():
        room = key.partition("/")[0]
        if room in ("log", "tables"):
            yield from _tokens(f"{room} token", key, data)
        elif room == "files":
            yield Region("carried file", key, 0, len(data))
        if room == "tables":
            tables[key] = json.loads(data)
    for record in records:
        if record["kind"] not in ("anchor", "delta"):
            continue
        table = tables[f"tables/{record['table']}.json"]
        if record["kind"] == "anchor":
            yield from _anchor(objects, prefix_of(record), table)
            continue
        for pack in record["packs"]:
            key = f"packs/{record['version']:020d}/{pack['sha256']}.pack"
            yield from _pack(key, objects[key], table)


def _tokens(what: str, key: str, data: bytes) -> Iterator[Region]:
    for token in _TOKEN.finditer(data):
        yield Region(what, key, *token.span())


def _fields(what: str, key: str, at: int, fields: tuple[tuple[str, int], ...]) -> Iterator[Region]:
    for name, size in fields:
        yield Region(f"{what} {name}", key, at, at + size)
        at += size


def _pack(key: str, data: bytes, table: dict[str, Any]) -> Iterator[Region]:
    yield from _fields("pack", key, 0, _HEADER)
    rows = int.from_bytes(data[12:16], "little")
    start = 64 + 44 * rows
    for row in range(rows):
        at = 64 + 44 * row
        yield from _fields("row", key, at, _ROW)
        array, chunk, length, _, encoding = (
            int.from_bytes(data[at + 4 * field : at + 4 * field + 4], "little") for field in range(5)
        )
        if encoding:
            yield Region("raw patch", key, start, start + length)
        else:
            yield from _runs(key, data, start, elements_of(table["arrays"][array], chunk))
        start += length


def elements_of(array: dict[str, Any], chunk: int) -> int:
    """N of a chunk of an array of a table, as JSON says it."""
    members = sum(math.prod(high - low for low, high in box) for box in array["members"])
    extents = (members, *array["shape"])
    counts = [-(-extent // step) for extent, step in zip(extents, array["chunk"], strict=True)]
    elements = 1
    for extent, step, count in reversed(list(zip(extents, array["chunk"], counts, strict=True))):
        chunk, at = divmod(chunk, count)
        elements *= min(step, extent - at * step)
    return elements


def _runs(key: str, data: bytes, start: int, elements: int) -> Iterator[Region]:
    runs = int.from_bytes(data[start : start + 4], "little")
    yield Region("number of runs", key, start, start + 4)
    at = start + 4 + 8 * runs
    for head in range(start + 4, at, 8):
        yield from _fields("run", key, head, _RUN)
        width, low_bits = data[head], data[head + 1]
        count = int.from_bytes(data[head + 4 : head + 8], "little")
        sections = (
            ("low section", count * low_bits),
            ("high section", count + ((elements - 1) >> low_bits)),
            ("residues", count * width),
        )
        for name, bits in sections:
            size = -(-bits // 32) * 4
            yield Region(name, key, at, at + size)
            at += size


def _anchor(objects: Objects, prefix: str, table: dict[str, Any]) -> Iterator[Region]:
    inventory = objects[prefix + "inventory.json"]
    yield from _tokens("inventory token", prefix + "inventory.json", inventory)
    for entry in json.loads(inventory)["objects"]:
        key, data = prefix + entry["key"], objects[prefix + entry["key"]]
        if entry["key"].endswith("zarr.json"):
            yield from _tokens("zarr token", key, data)
        elif entry["key"] == "sums":
            yield Region("sums", key, 0, len(data))
        else:
            array = int(entry["key"].partition("/")[0].removeprefix("array-"))
            yield from _shard(key, data, table["arrays"][array], objects, prefix, array)


def _shard(
    key: str, data: bytes, array: dict[str, Any], objects: Objects, prefix: str, number: int
) -> Iterator[Region]:
    start = len(data) - index_size(json.loads(objects[f"{prefix}array-{number:05d}/zarr.json"]), array)
    size = math.prod(array["chunk"]) * DTYPES[array["dtype"]].itemsize
    for at in range(0, start, size + 4):
        yield Region("chunk", key, at, at + size)
        yield Region("chunk checksum", key, at + size, at + size + 4)
    yield Region("shard index", key, start, len(data) - 4)
    yield Region("index checksum", key, len(data) - 4, len(data))


def index_size(metadata: dict[str, Any], array: dict[str, Any]) -> int:
    """Bytes of the index of each shard of an array."""
    whole = metadata["chunk_grid"]["configuration"]["chunk_shape"]
    places = [int(one) // int(part) for one, part in zip(whole, array["chunk"], strict=True)]
    return 16 * math.prod(places) + 4
