"""Appendix A.9 of SPEC.md: a whole stream, put together from the text, read by package and decoder."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deltastore.anchors.encoding import ShardEncoder
from deltastore.anchors.zarr_metadata import array_metadata, group_metadata, read_shards
from deltastore.format.digest import Digester, digest_text
from deltastore.format.inventory import Inventory
from deltastore.format.pack import PackBuilder, PackIndex, index_bytes, pack_key
from deltastore.format.patch import EncodedPatch, Encoding
from deltastore.format.records import (
    AnchorRecord,
    DeltaRecord,
    file_key,
    parse_record,
    record_key,
    table_key,
)
from deltastore.format.table import TensorTable
from deltastore.stores.local import LocalStore
from deltastore.stream import AsyncStream
from deltastore.validate import validate
from spec import decoder

from .test_worked_examples import BLOCKS, octets

Bits = np.ndarray[Any, Any]

TABLE = TensorTable.from_bytes(BLOCKS["stream-table"].encode(), "table")
RECORDS = [parse_record(BLOCKS[f"stream-log-{slot}"].encode(), slot) for slot in range(4)]
(ANCHOR,) = (record for record in RECORDS if isinstance(record, AnchorRecord))
(DELTA,) = (record for record in RECORDS if isinstance(record, DeltaRecord))
PREFIX = ANCHOR.anchor.prefix(ANCHOR.version)

WEIGHTS = (
    np.stack([np.full(16, 0x3F80, "<u2"), np.zeros(16, "<u2")]),
    np.stack([np.full(16, 0x3F80, "<u2"), np.arange(0x3C00, 0x3C10, dtype="<u2")]),
)
"""What the text says of both versions, but for the two elements that move by one."""
WEIGHTS[1][0, [2, 9]] = [0x3F81, 0x3F7F]


def objects() -> dict[str, bytes]:
    """Every object of the stream as its block shows it, by key."""
    found = {record_key(slot): BLOCKS[f"stream-log-{slot}"].encode() for slot in range(4)}
    found[table_key(TABLE.sha256)] = BLOCKS["stream-table"].encode()
    found[file_key(hashlib.sha256(BLOCKS["stream-file"].encode()).hexdigest())] = BLOCKS[
        "stream-file"
    ].encode()
    found[PREFIX + "zarr.json"] = BLOCKS["stream-group"].encode()
    found[PREFIX + "array-00000/zarr.json"] = BLOCKS["stream-array"].encode()
    found[PREFIX + "array-00000/c/0/0"] = octets(BLOCKS["stream-shard"], offsets=True)
    found[PREFIX + "inventory.json"] = BLOCKS["stream-inventory"].encode()
    pack = octets(BLOCKS["stream-pack"], offsets=True)
    found[pack_key(1, hashlib.sha256(pack).hexdigest())] = pack
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The stream as a folder."""
    for key, data in objects().items():
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path


def test_the_list_of_its_objects() -> None:
    listed = [(int(size), key) for size, key in re.findall(r"^ *(\d+)  (\S+)$", BLOCKS["stream-keys"], re.M)]
    assert listed == [(len(data), key) for key, data in sorted(objects().items())]


@pytest.mark.parametrize("version", [0, 1])
def test_the_decoder_reads_it(folder: Path, version: int) -> None:
    manifest, tensors = decoder.read_version(folder, version)
    assert manifest["version"] == version
    assert {name: bits.tolist() for name, (_, bits) in tensors.items()} == {
        f"layers.{layer}.w": WEIGHTS[version][layer].tolist() for layer in (0, 1)
    }


@pytest.mark.parametrize("version", [0, 1])
async def test_the_package_reads_it(folder: Path, version: int) -> None:
    async with await AsyncStream.open(LocalStore(folder)) as stream:
        weights = await stream.weights(version)
        for chunk in (0, 1):
            assert (await weights.read(0, chunk)).tobytes() == WEIGHTS[version][chunk].tobytes()
        assert await stream.config() == {"model_type": "tiny"}


async def test_nothing_is_wrong_with_it(folder: Path) -> None:
    report = await validate(LocalStore(folder))
    assert report.ok, report.problems
    assert (report.records, report.versions, report.anchors, report.packs) == (4, 2, 1, 1)


@pytest.mark.spec("DS011", "DS051")
def test_its_records_are_a_chain() -> None:
    befores = [None, *RECORDS[:-1]]
    for before, record in zip(befores, RECORDS, strict=True):
        assert record.parent == (None if before is None else before.sha256)
        assert record.to_bytes().decode() == BLOCKS[f"stream-log-{record.slot}"]
        assert decoder.decode_record(record.to_bytes(), record.slot)["sha256"] == record.sha256
    assert [record.kind for record in RECORDS] == ["birth", "epoch", "anchor", "delta"]


def test_its_anchor_is_what_the_package_would_write() -> None:
    array = TABLE.arrays[0]
    shards = read_shards(BLOCKS["stream-array"].encode(), array, "array")
    assert json.loads(BLOCKS["stream-array"]) == array_metadata(array, shards)
    assert json.loads(BLOCKS["stream-group"]) == group_metadata(TABLE, 0)
    inventory = Inventory.from_bytes(BLOCKS["stream-inventory"].encode(), "inventory")
    stored = {entry.key: objects()[PREFIX + entry.key] for entry in inventory.objects}
    assert len(stored) == 3
    for entry in inventory.objects:
        assert (entry.bytes, entry.sha256) == (
            len(stored[entry.key]),
            hashlib.sha256(stored[entry.key]).hexdigest(),
        )
    assert ANCHOR.statistics.bytes == sum(map(len, stored.values()))


async def test_its_shard_is_what_tensorstore_writes() -> None:
    array = TABLE.arrays[0]
    shards = read_shards(BLOCKS["stream-array"].encode(), array, "array")
    encoder = await ShardEncoder.open(array, shards)
    assert await encoder.encode(0, WEIGHTS[0].copy()) == octets(BLOCKS["stream-shard"], offsets=True)


def test_its_pack_is_what_the_package_would_write() -> None:
    data = octets(BLOCKS["stream-pack"], offsets=True)
    index = PackIndex.parse(data, TABLE, "pack")
    builder = PackBuilder(index.version, index.nonce)
    for _, row, start, end in index.patches():
        patch = EncodedPatch(Encoding(int(row["encoding"])), data[start:end], int(row["count"]))
        builder.add(0, int(row["array"]), int(row["chunk"]), patch, int(row["difference"]))
    pack = builder.finish()
    assert bytes(pack.data) == data
    (said,) = DELTA.packs
    assert (said.sha256, said.index_sha256, said.bytes) == (pack.sha256, pack.index_sha256, len(data))
    assert (said.rows, said.count, said.slabs) == (pack.rows, pack.count, pack.slabs)
    assert index.nonce.hex() == DELTA.nonce
    assert hashlib.sha256(data[: index_bytes(said.rows)]).hexdigest() == said.index_sha256
    assert decoder.decode_pack(data, decoder.decode_table(TABLE.to_bytes())).version == DELTA.version


@pytest.mark.spec("DS046", "DS062")
def test_its_digests_add_up() -> None:
    digester, lines = Digester(TABLE), BLOCKS["stream-digest"]
    boxes = [TABLE.arrays[0].grid.box(chunk) for chunk in (0, 1)]
    sums = [
        [digester.chunk(0, box, weights[chunk : chunk + 1]) for chunk, box in enumerate(boxes)]
        for weights in WEIGHTS
    ]
    rows = PackIndex.parse(octets(BLOCKS["stream-pack"], offsets=True), TABLE, "pack").rows
    for chunk in (0, 1):
        difference = (sums[1][chunk] - sums[0][chunk]) % 2**64
        assert int(rows[chunk]["difference"]) == difference
        assert f"difference of row {chunk}: {digest_text(difference)}" in lines
    assert digest_text(sum(sums[0]) % 2**64) == ANCHOR.digest
    assert digest_text(sum(sums[1]) % 2**64) == DELTA.digest
    assert f"version 0, the sum: {ANCHOR.digest}" in lines
    assert f"= {DELTA.digest} modulo 2^64" in lines
