"""Stores whose anchors are broken, all hashes being right: SPEC section 13."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

from spec.vectors.make.breaking import Broken
from spec.vectors.make.by_hand_anchor import crc
from spec.vectors.make.objects import (
    Objects,
    anchor_prefix,
    change_inventory,
    change_object,
    change_record,
    record_key,
    record_of,
    sha256,
)

Fields = dict[str, Any]
Harm = Callable[[Objects], str]

_SHARD = "array-00001/c/0/0/0"
"""Of version 6: four chunks of four F32 with their checksums, 20 bytes each, the last chunk first."""


def _object(name: str, change: Callable[[bytes], bytes], *, where: str | None = None) -> Harm:
    """Change an object of anchor 6; inventory and record follow."""

    def harm(objects: Objects) -> str:
        change_object(objects, 6, name, change)
        return anchor_prefix(record_of(objects, 6)) + (where or name)

    return harm


def _metadata(name: str, change: Callable[[Fields], object]) -> Harm:
    def changed(data: bytes) -> bytes:
        fields = json.loads(data)
        change(fields)
        return json.dumps(fields).encode()

    return _object(name, changed)


def _array(**members: Any) -> Harm:
    return _metadata("array-00001/zarr.json", lambda fields: fields.update(members))


def _codecs(change: Callable[[list[Any]], object]) -> Harm:
    def changed(fields: Fields) -> None:
        change(fields["codecs"][0]["configuration"]["codecs"])

    return _metadata("array-00001/zarr.json", changed)


def _attribute(**members: Any) -> Harm:
    return _metadata(
        "array-00001/zarr.json", lambda fields: fields["attributes"]["deltastore"].update(members)
    )


def _index(change: Callable[[list[int]], object]) -> Harm:
    """Change the offsets and lengths of the four chunks of a shard; the checksum follows."""

    def changed(data: bytes) -> bytes:
        index = data[80:144]
        numbers = [int.from_bytes(index[at : at + 8], "little") for at in range(0, 64, 8)]
        change(numbers)
        return data[:80] + crc(b"".join(number.to_bytes(8, "little") for number in numbers))

    return _object(_SHARD, changed)


def _put(at: int, *values: int) -> Callable[[list[int]], object]:
    return lambda numbers: numbers.__setitem__(slice(at, at + len(values)), list(values))


def _beyond(objects: Objects) -> str:
    """Shards of eight places of which the array has four, and an entry for the last one all the same."""

    def widened(data: bytes) -> bytes:
        fields = json.loads(data)
        fields["chunk_grid"]["configuration"]["chunk_shape"][0] *= 2
        return json.dumps(fields).encode()

    absent = (2**64 - 1).to_bytes(8, "little")
    entry = (0).to_bytes(8, "little") + (20).to_bytes(8, "little")
    change_object(objects, 6, "array-00001/zarr.json", widened)
    change_object(objects, 6, _SHARD, lambda data: data[:80] + crc(data[80:144] + 6 * absent + entry))
    return anchor_prefix(record_of(objects, 6)) + _SHARD


def _inventory(change: Callable[[Fields], object], where: str = "inventory.json") -> Harm:
    def harm(objects: Objects) -> str:
        change_inventory(objects, 6, change)
        return anchor_prefix(record_of(objects, 6)) + where

    return harm


def _named_besides(objects: Objects) -> str:
    prefix = anchor_prefix(record_of(objects, 6))
    objects[prefix + "notes"] = b"a note"
    item = {"key": "notes", "bytes": 6, "sha256": sha256(b"a note")}

    def change(fields: Fields) -> None:
        fields["objects"] = sorted([*fields["objects"], item], key=lambda one: one["key"])

    change_inventory(objects, 6, change)
    return prefix + "notes"


def _named_itself(objects: Objects) -> str:
    def change(fields: Fields) -> None:
        item = {"key": "inventory.json", "bytes": 7, "sha256": "0" * 64}
        fields["objects"] = sorted([*fields["objects"], item], key=lambda one: one["key"])

    change_inventory(objects, 6, change)
    return anchor_prefix(record_of(objects, 6)) + "inventory.json"


def _unnamed_besides(objects: Objects) -> str:
    prefix = anchor_prefix(record_of(objects, 6))
    objects[prefix + "array-00001/c/0/0/1"] = b"another shard"
    return prefix + "array-00001/c/0/0/1"


def _left_out(name: str) -> Harm:
    """The inventory does not name an object, which is gone as well."""

    def harm(objects: Objects) -> str:
        def change(fields: Fields) -> None:
            fields["objects"] = [item for item in fields["objects"] if item["key"] != name]

        change_inventory(objects, 6, change)
        key = anchor_prefix(record_of(objects, 6)) + name
        del objects[key]
        return key

    return harm


def _other_inventory(objects: Objects) -> str:
    record = record_of(objects, 6)
    key = anchor_prefix(record) + "inventory.json"
    change_record(objects, record["slot"], lambda fields: fields["anchor"].update(inventory_sha256="0" * 64))
    return key


def _wrong_digest(objects: Objects) -> str:
    record = record_of(objects, 6)
    change_record(objects, record["slot"], lambda fields: fields.update(digest="0123456789abcdef"))
    return record_key(record["slot"])


def _flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _swap_chunks(data: bytes) -> bytes:
    """Two chunks of a shard change places, checksums and all."""
    return data[20:40] + data[:20] + data[40:]


def anchors() -> Iterator[Broken]:
    """All of them."""
    yield from _inventories()
    yield from _zarr()
    yield from _shards()
    digest = "bad_digest"
    yield Broken("an anchor of another digest", digest, "DS093", "deep", _wrong_digest, 6)


def _inventories() -> Iterator[Broken]:
    bad, structure = "bad_anchor", "structure"
    yield Broken("another inventory than the record's", "bad_hash", "DS072", structure, _other_inventory, 6)
    yield Broken(
        "an inventory out of order",
        "bad_json",
        "DS013",
        structure,
        _inventory(lambda fields: fields["objects"].reverse()),
        6,
    )
    yield Broken("an object that nothing names", bad, "DS072", structure, _unnamed_besides)
    yield Broken("an object that is no part of the table", bad, "DS072", structure, _named_besides, 6)
    yield Broken("a shard that the inventory does not name", bad, "DS072", structure, _left_out(_SHARD), 6)
    yield Broken("an inventory that names itself", bad, "DS072", structure, _named_itself, 6)
    yield Broken(
        "a group that the inventory does not name", bad, "DS072", structure, _left_out("zarr.json"), 6
    )


def _zarr() -> Iterator[Broken]:
    gzip = {"name": "gzip", "configuration": {"level": 5}}
    group = "zarr.json"

    def own(**members: Any) -> Harm:
        return _metadata(group, lambda fields: fields["attributes"]["deltastore"].update(members))

    cases: dict[str, Harm] = {
        "a group of another version": own(version=7),
        "a group of another table": own(table="0" * 64),
        "a group of another format": own(format=2),
        "a group without its attribute": _metadata(group, lambda fields: fields["attributes"].clear()),
        "a group that is an array": _metadata(group, lambda fields: fields.update(node_type="array")),
        "a group that is not JSON": _object(group, lambda _: b"{"),
        "a group that is a list": _object(group, lambda _: b"[]"),
        "an array that is not JSON": _object("array-00001/zarr.json", lambda _: b"nonsense"),
        "an array of another shape": _array(shape=[2, 3, 3]),
        "an array of another data type": _array(data_type="int32"),
        "an array of Zarr 2": _array(zarr_format=2),
        "an array with storage transformers": _array(storage_transformers=[gzip]),
        "an array of other chunk keys": _array(
            chunk_key_encoding={"name": "default", "configuration": {"separator": "."}}
        ),
        "an array without sharding": _array(
            codecs=[{"name": "bytes", "configuration": {"endian": "little"}}]
        ),
        "shards that are no whole chunks": _array(
            chunk_grid={"name": "regular", "configuration": {"chunk_shape": [3, 4, 2]}}
        ),
        "shards of no elements": _array(
            chunk_grid={"name": "regular", "configuration": {"chunk_shape": [0, 4, 2]}}
        ),
        "a codec that inflates": _codecs(lambda codecs: codecs.insert(1, gzip)),
        "a codec of big-endian numbers": _codecs(
            lambda codecs: codecs.__setitem__(0, {"name": "bytes", "configuration": {"endian": "big"}})
        ),
        "chunks without checksums": _codecs(lambda codecs: codecs.pop()),
        "an index at the start": _metadata(
            "array-00001/zarr.json",
            lambda fields: fields["codecs"][0]["configuration"].update(index_location="start"),
        ),
        "inner chunks that are not the table's": _metadata(
            "array-00001/zarr.json",
            lambda fields: fields["codecs"][0]["configuration"].update(chunk_shape=[2, 1, 2]),
        ),
        "an array of another element type": _attribute(dtype="U32"),
        "an array of another pattern": _attribute(pattern="h"),
        "an array of other members": _attribute(members=[[[0, 2]]]),
        "an array with an attribute too many": _attribute(note=1),
        "an array whose shape has a fraction": _array(shape=[2.0, 3, 2]),
        "an array of Zarr 3.0": _array(zarr_format=3.0),
        "an array whose storage transformers are null": _array(storage_transformers=None),
        "an array without its chunk keys": _metadata(
            "array-00001/zarr.json", lambda fields: fields.pop("chunk_key_encoding")
        ),
        "an array whose data type is an object": _array(data_type={"name": "float32"}),
        "an array whose fill value is no JSON": _array(fill_value=math.nan),
        "an array whose members are true": _attribute(members=[[[False, 1]], [[2, 3]]]),
        "a codec with a member too many": _codecs(
            lambda codecs: codecs.__setitem__(1, {"name": "crc32c", "must_understand": False})
        ),
        "a codec of no byte order": _codecs(lambda codecs: codecs.__setitem__(0, {"name": "bytes"})),
        "a group whose format is true": own(format=True),
    }
    for name, harm in cases.items():
        yield Broken(name, "bad_anchor", "DS071", "structure", harm, 6)
    many = {"name": "regular", "configuration": {"chunk_shape": [2, 2, 2**20 + 1]}}
    yield Broken("shards of too many places", "bad_anchor", "DS100", "structure", _array(chunk_grid=many), 6)


def _shards() -> Iterator[Broken]:
    absent = 2**64 - 1
    reading: dict[str, tuple[str, Harm]] = {
        "a chunk that is left out": ("DS070", _index(_put(0, absent, absent))),
        "a chunk of another length": ("DS071", _index(_put(1, 16))),
        "a chunk outside the shard": ("DS071", _index(_put(0, 61))),
        "a chunk far outside the shard": ("DS071", _index(_put(0, 2**64 - 20))),
        "two chunks at one place": ("DS071", _index(_put(0, 0))),
        "two chunks that share bytes": ("DS071", _index(_put(0, 50))),
        "a chunk at a place outside the array": ("DS071", _beyond),
        "a shard shorter than its index": ("DS071", _object(_SHARD, lambda data: data[:60])),
        "a shard longer than its chunks": (
            "DS071",
            _object(_SHARD, lambda data: data[:80] + b"\0" + data[80:]),
        ),
    }
    for name, (check, harm) in reading.items():
        level = "structure" if "longer" in name else "content"
        yield Broken(name, "bad_anchor", check, level, harm, 6)
    checked: dict[str, tuple[str, Harm]] = {
        "a chunk with another checksum": ("DS073", _object(_SHARD, _flip(16))),
        "an index with another checksum": ("DS073", _object(_SHARD, _flip(144))),
        "an index of other bytes": ("DS073", _object(_SHARD, _flip(88))),
        "two chunks that have changed places": ("DS074", _object(_SHARD, _swap_chunks)),
        "a sum that is not the chunk's": ("DS074", _object("sums", _flip(32), where=_SHARD)),
        "sums cut short": ("DS074", _object("sums", lambda data: data[:-16])),
        "sums of one chunk more": ("DS074", _object("sums", lambda data: data + bytes(16))),
    }
    for name, (check, harm) in checked.items():
        length = name.startswith("sums")
        yield Broken(
            name, "bad_anchor", check, "structure" if length else "content", harm, 6 if length else None
        )
