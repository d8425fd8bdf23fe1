"""SPEC 13: anchors."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spec.decoder.elements import U64, WIDTHS
from spec.decoder.json_objects import HASH, SEAL, canonical, conforms, decode_json, parse_json, sequence
from spec.decoder.refusal import fail, need
from spec.decoder.storage import SEGMENT, at, get, get_named
from spec.decoder.table import Array, Table

ZARR_TYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}
ZARR_TYPES |= {f"I{width}": f"int{width}" for width in (8, 16, 32, 64)}


def is_key(value: Any) -> bool:
    """A key relative to the anchor's prefix, which has 62 characters."""
    short = isinstance(value, str) and len(value) <= 1024 - 62
    return short and all(map(SEGMENT.fullmatch, value.split("/")))


OBJECT = {"key": is_key, "bytes": range(2**31 + 1), "sha256": HASH}
INVENTORY = {**SEAL, "kind": "inventory", "objects": [OBJECT]}

CRC32C = list(range(256))
for _ in range(8):
    CRC32C = [value >> 1 ^ 0x82F63B78 * (value & 1) for value in CRC32C]


def checked(data: bytes) -> bytes:
    """DS073, Zarr codec `crc32c`: the bytes in front of their checksum."""
    crc = 0xFFFFFFFF
    for byte in data[:-4]:
        crc = crc >> 8 ^ CRC32C[(crc ^ byte) & 0xFF]
    need(data[-4:] == (crc ^ 0xFFFFFFFF).to_bytes(4, "little"), "bad_anchor", "DS073", "a crc32c")
    return data[:-4]


def parse_zarr(raw: bytes) -> dict[str, Any]:
    """DS071: a `zarr.json`, where the attribute `deltastore` is an object."""
    try:
        value = parse_json(raw)
    except (ValueError, RecursionError):
        fail("bad_anchor", "DS071", "zarr.json is no JSON")
    good = isinstance(value, dict) and isinstance(value.get("attributes"), dict)
    good = good and isinstance(value["attributes"].get("deltastore"), dict)
    need(good, "bad_anchor", "DS071", "zarr.json lacks its attribute")
    return dict(value)


def is_same(found: Any, wanted: Any) -> bool:
    """Whether two JSON values are one: true and 1.0 are not 1, as they are in Python."""
    try:
        return canonical(found) == canonical(wanted)
    except (UnicodeEncodeError, RecursionError):
        return False


def shard_shape(meta: dict[str, Any], array: Array) -> list[int]:
    """DS071: the shard shape of a Zarr array, everything else of which is as the table says."""
    width = WIDTHS[array.dtype]
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    plain = ("bytes", {"name": "bytes"}, {"name": "bytes", "configuration": {}})
    order = (little, *plain) if width == 8 else little
    crc = ("crc32c", {"name": "crc32c"}, {"name": "crc32c", "configuration": {}})
    inner: dict[str, Any] = {"chunk_shape": sequence(*array.chunk), "codecs": sequence(order, crc)}
    inner |= {"index_codecs": sequence(little, crc)}
    sharding = (inner | {"index_location": "end"}, inner)  # the end is Zarr's default
    steps = sequence(*(range(step, 2**53, step) for step in array.chunk))
    slash: tuple[Any, ...] = ("default", {"name": "default"}, {"name": "default", "configuration": {}})
    slash += ({"name": "default", "configuration": {"separator": "/"}},)
    schema: dict[str, Any] = {"zarr_format": 3, "node_type": "array", "shape": sequence(*array.stacked())}
    schema |= {"data_type": ZARR_TYPES.get(array.dtype, f"uint{width}"), "chunk_key_encoding": slash}
    schema |= {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": steps}}}
    schema |= {"codecs": sequence({"name": "sharding_indexed", "configuration": sharding})}
    good = conforms({key: meta.get(key) for key in schema}, schema)
    good = good and meta.get("storage_transformers", []) == []
    need(good, "bad_anchor", "DS071", "a Zarr array that is not the table's")
    own = {"dtype": array.dtype, "pattern": array.pattern, "members": array.members}
    same = is_same(meta["attributes"]["deltastore"], own)
    need(same, "bad_anchor", "DS071", "the attributes of a Zarr array")
    shape = [int(step) for step in meta["chunk_grid"]["configuration"]["chunk_shape"]]
    need(places_of(shape, array) <= 2**20, "bad_anchor", "DS100", "places of a shard")
    return shape


def places_of(shape: list[int], array: Array) -> int:
    """Entries of the index of a shard of this shape."""
    return math.prod(whole // step for whole, step in zip(shape, array.chunk, strict=True))


def stored_bytes(array: Array) -> int:
    """Bytes of a chunk in a shard, with its checksum."""
    return math.prod(array.chunk) * WIDTHS[array.dtype] // 8 + 4


class Shards(NamedTuple):
    """The shards of one array: their keys by shard grid coordinates, and the shape of one."""

    shape: list[int]
    keys: dict[tuple[int, ...], str]

    @classmethod
    def of(cls, number: int, array: Array, shape: list[int], objects: int) -> Shards:
        """Those of array `number` of a table, in an anchor of so many objects."""
        grid = [-(-extent // step) for extent, step in zip(array.stacked(), shape, strict=True)]
        need(math.prod(grid) <= objects, "bad_anchor", "DS072", "fewer objects than shards")
        places = product(*map(range, grid))
        return cls(shape, {place: f"array-{number:05}/c/" + "/".join(map(str, place)) for place in places})


class Anchor(NamedTuple):
    """What an anchor's objects are; all is checked but the shards. `sums` is empty where there are none."""

    prefix: str
    objects: dict[str, dict[str, Any]]
    shards: list[Shards]
    sums: bytes


def fetch(root: Path, prefix: str, objects: dict[str, dict[str, Any]], key: str) -> bytes:
    """DS072, DS073: an object of an anchor."""
    with at(prefix + key):
        need(key in objects, "bad_anchor", "DS072", f"{key} is not in the inventory")
        return get_named(root, prefix + key, objects[key]["bytes"], objects[key]["sha256"], "DS073")


def decode_inventory(raw: bytes) -> dict[str, Any]:
    """The inventory of an anchor from its stored bytes."""
    inventory = decode_json(raw, 64 * 2**20)
    need(conforms(inventory, INVENTORY), "bad_json", "DS013", "not of the inventory's schema")
    need(len(inventory["objects"]) <= 2**18, "bad_json", "DS100", "objects of an anchor")
    keys = [item["key"] for item in inventory["objects"]]
    need(keys == sorted(set(keys)), "bad_json", "DS013", "keys of the inventory do not ascend")
    return inventory


def read_inventory(root: Path, manifest: dict[str, Any]) -> tuple[str, dict[str, dict[str, Any]]]:
    """DS072: the prefix of a version's anchor, and what its inventory lists."""
    anchor, version = manifest["anchor"], manifest["version"]
    prefix = f"anchors/{version:020}/{anchor['attempt']}/"
    with at(prefix + "inventory.json"):
        raw = get(root, prefix + "inventory.json", anchor["inventory_bytes"], longer="DS072")
        need(len(raw) == anchor["inventory_bytes"], "bad_length", "DS072", "the inventory is shorter")
        inventory = decode_inventory(raw)
        same = inventory["sha256"] == anchor["inventory_sha256"]
        need(same, "bad_hash", "DS072", "another inventory than the record's")
    return prefix, {item["key"]: item for item in inventory["objects"]}


def open_anchor(root: Path, manifest: dict[str, Any], table: Table) -> Anchor:
    """DS071, DS072: an anchor's inventory and metadata."""
    prefix, objects = read_inventory(root, manifest)
    group = parse_within(root, prefix, objects, "zarr.json")
    own = {"format": 1, "table": table.sha256, "version": manifest["version"]}
    good = is_same([group.get("zarr_format"), group.get("node_type")], [3, "group"])
    with at(prefix + "zarr.json"):
        good = good and is_same(group["attributes"]["deltastore"], own)
        need(good, "bad_anchor", "DS071", "another group than this version's")
    shards = []
    for number, array in enumerate(table.arrays):
        key = f"array-{number:05}/zarr.json"
        meta = parse_within(root, prefix, objects, key)
        with at(prefix + key):
            shape = shard_shape(meta, array)
            places = places_of(shape, array)
            shards.append(Shards.of(number, array, shape, len(objects)))
        most = places * stored_bytes(array) + 16 * places + 4
        for key in shards[-1].keys.values():
            with at(prefix + key):
                need(key in objects, "bad_anchor", "DS072", f"{key} is not in the inventory")
                need(objects[key]["bytes"] <= most, "bad_anchor", "DS071", "longer than all its places need")
    keys = {"zarr.json", *(f"array-{number:05}/zarr.json" for number in range(len(shards)))}
    keys.update(key for each in shards for key in each.keys.values())
    for key in sorted(keys ^ (set(objects) - {"sums"})):
        with at(prefix + key):
            fail("bad_anchor", "DS072", f"{key}: the inventory names every object of the anchor and no other")
    return Anchor(prefix, objects, shards, read_sums(root, prefix, objects, table))


def read_sums(root: Path, prefix: str, objects: dict[str, dict[str, Any]], table: Table) -> bytes:
    """DS074: the sums of all chunks, 16 bytes each, or none where the anchor has no such object."""
    if "sums" not in objects:
        return b""
    with at(prefix + "sums"):
        nbytes, chunks = objects["sums"]["bytes"], sum(math.prod(array.grid()) for array in table.arrays)
        need(nbytes <= 2**26, "bad_anchor", "DS100", "the sums are above their limit")
        need(nbytes == 16 * chunks, "bad_anchor", "DS074", "not 16 bytes for every chunk")
    return fetch(root, prefix, objects, "sums")


def parse_within(root: Path, prefix: str, objects: dict[str, dict[str, Any]], key: str) -> dict[str, Any]:
    """A `zarr.json` of an anchor."""
    with at(prefix + key):
        nbytes = objects.get(key, {"bytes": 0})["bytes"]
        need(nbytes <= 2**26, "bad_anchor", "DS100", "metadata above its limit")
    data = fetch(root, prefix, objects, key)
    with at(prefix + key):
        return parse_zarr(data)


def shard_chunks(data: bytes, place: Sequence[int], shard: list[int], array: Array) -> dict[int, bytes]:
    """DS070, DS071: the inner chunks, as stored, of the shard at these coordinates, by chunk number."""
    per = [whole // step for whole, step in zip(shard, array.chunk, strict=True)]
    end = len(data) - 16 * places_of(shard, array) - 4
    need(end >= 0, "bad_anchor", "DS071", "a shard shorter than its index")
    index = np.frombuffer(checked(data[end:]), "<u8").reshape(*per, 2)
    size = stored_bytes(array)
    starts: dict[int, int] = {}
    for inside in product(*map(range, per)):
        cell = [one * step + more for one, step, more in zip(place, per, inside, strict=True)]
        start, length = map(int, index[inside])
        absent = start == length == 2**64 - 1
        if any(one >= extent for one, extent in zip(cell, array.grid(), strict=True)):
            need(absent, "bad_anchor", "DS071", "a chunk at a place outside the array")
            continue
        need(not absent, "bad_anchor", "DS070", "a chunk that is not stored")
        fits = length == size and start + size <= end
        need(fits, "bad_anchor", "DS071", "a chunk of another length, or outside the object")
        starts[array.number(cell)] = start
    apart = all(two - one >= size for one, two in pairwise(sorted(starts.values())))
    need(apart, "bad_anchor", "DS071", "two chunks share bytes")
    return {number: data[start : start + size] for number, start in starts.items()}


def write_chunks(chunks: dict[int, bytes], array: Array, sums: bytes, stacked: U64) -> None:
    """DS073, DS074: write inner chunks into the stacked array; `sums` are those of the array's chunks."""
    for number, stored in chunks.items():
        bits = np.frombuffer(checked(stored), f"<u{WIDTHS[array.dtype] // 8}").reshape(array.chunk)
        own = hashlib.sha256(stored).digest()[:16] == sums[16 * number : 16 * number + 16]
        need(own or not sums, "bad_anchor", "DS074", "another chunk than the one of this place")
        box = array.box(array.cell(number))
        stacked[box] = bits[tuple(slice(0, axis.stop - axis.start) for axis in box)]


def load_anchor(root: Path, manifest: dict[str, Any], table: Table) -> list[U64]:
    """SPEC 13: the weights of a version that is stored whole."""
    anchor, first = open_anchor(root, manifest, table), 0
    weights = []
    for array, shards in zip(table.arrays, anchor.shards, strict=True):
        size = math.prod(array.stacked()) * WIDTHS[array.dtype] // 8
        held = sum(anchor.objects[key]["bytes"] for key in shards.keys.values())
        with at(anchor.prefix + "inventory.json"):
            need(size <= held, "bad_anchor", "DS070", "too few bytes for all chunks")
        stacked = np.zeros(array.stacked(), np.uint64)
        last = first + math.prod(array.grid())
        for place, key in shards.keys.items():
            data = fetch(root, anchor.prefix, anchor.objects, key)
            with at(anchor.prefix + key):
                chunks = shard_chunks(data, place, shards.shape, array)
                write_chunks(chunks, array, anchor.sums[16 * first : 16 * last], stacked)
        weights.append(stacked)
        first = last
    return weights
