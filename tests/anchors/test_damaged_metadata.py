"""Metadata that is not of this anchor is an error with a name, whatever the inventory says."""

from __future__ import annotations

import pytest

from tests.anchors.damaged import Anchor, Edit, Metadata

ARRAY = "array-00000/zarr.json"

GROUP_EDITS: dict[str, Edit] = {
    "another table": lambda group: group["attributes"]["deltastore"].update(table="0" * 64),
    "another version": lambda group: group["attributes"]["deltastore"].update(version=2),
    "another format": lambda group: group["attributes"]["deltastore"].update(format=2),
    "no attributes": lambda group: group.pop("attributes"),
    "attributes that are text": lambda group: group.update(attributes="deltastore"),
    "an array": lambda group: group.update(node_type="array"),
    "Zarr v2": lambda group: group.update(zarr_format=2),
}

ARRAY_EDITS: dict[str, Edit] = {
    "a longer shape": lambda array: array["shape"].__setitem__(1, 9),
    "another rank": lambda array: array["shape"].append(1),
    "another data type": lambda array: array.update(data_type="float16"),
    "another key encoding": lambda array: array["chunk_key_encoding"].update(name="v2"),
    "another separator": lambda array: array["chunk_key_encoding"].update(configuration={"separator": "."}),
    "no codecs": lambda array: array.update(codecs=[]),
    "codecs that are text": lambda array: array.update(codecs="sharding_indexed"),
    "a codec that is a number": lambda array: array.update(codecs=[7]),
    "a codec after sharding": lambda array: array["codecs"].append({"name": "crc32c"}),
    "other inner chunks": lambda array: sharding(array).update(chunk_shape=[1, 8, 4]),
    "a compressor": lambda array: sharding(array)["codecs"].append({"name": "zstd"}),
    "big-endian": lambda array: sharding(array)["codecs"][0].update(configuration={"endian": "big"}),
    "no checksums": lambda array: sharding(array)["codecs"].pop(),
    "the index first": lambda array: sharding(array).update(index_location="start"),
    "another index": lambda array: sharding(array)["index_codecs"].pop(),
    "no chunk grid": lambda array: array.pop("chunk_grid"),
    "another chunk grid": lambda array: array["chunk_grid"].update(name="rectilinear"),
    "a chunk grid without a shape": lambda array: array["chunk_grid"].update(configuration={}),
    "half a chunk per shard": lambda array: shard_shape(array, [1, 2, 8]),
    "shards of nothing": lambda array: shard_shape(array, [0, 8, 8]),
    "shards of fractions": lambda array: shard_shape(array, [1.0, 8, 8]),
    "shards of another rank": lambda array: shard_shape(array, [1, 8]),
    "shards beyond all measure": lambda array: shard_shape(array, [1 << 60, 1 << 62, 1 << 61]),
    "smaller shards": lambda array: shard_shape(array, [1, 4, 8]),
    "storage transformers": lambda array: array.update(storage_transformers=[{"name": "x"}]),
    "another element type": lambda array: array["attributes"]["deltastore"].update(dtype="F16"),
    "another pattern": lambda array: array["attributes"]["deltastore"].update(pattern="v.*"),
    "other members": lambda array: array["attributes"]["deltastore"].update(members=[[[0, 4]]]),
    "attributes that are a list": lambda array: array.update(attributes=[]),
}


def sharding(array: Metadata) -> Metadata:
    configuration: Metadata = array["codecs"][0]["configuration"]
    return configuration


def shard_shape(array: Metadata, shape: list[float]) -> None:
    array["chunk_grid"]["configuration"]["chunk_shape"] = shape


@pytest.mark.parametrize("edit", sorted(GROUP_EDITS))
@pytest.mark.spec("DS071")
async def test_a_group_of_something_else(anchor: Anchor, edit: str) -> None:
    await anchor.edit("zarr.json", GROUP_EDITS[edit])
    error = await anchor.refused()
    assert (error.code, error.where) == ("bad_anchor", anchor.key("zarr.json"))


@pytest.mark.parametrize("edit", sorted(ARRAY_EDITS))
@pytest.mark.spec("DS071")
async def test_an_array_of_something_else(anchor: Anchor, edit: str) -> None:
    await anchor.edit(ARRAY, ARRAY_EDITS[edit])
    assert (await anchor.refused()).code == "bad_anchor"


HARMLESS: dict[str, Edit] = {
    "short codec names": lambda array: sharding(array).update(
        codecs=[sharding(array)["codecs"][0], "crc32c"]
    ),
    "default index place": lambda array: sharding(array).pop("index_location"),
    "default separator": lambda array: array["chunk_key_encoding"].pop("configuration"),
    "short key encoding": lambda array: array.update(chunk_key_encoding="default"),
    "no storage transformers": lambda array: array.update(storage_transformers=[]),
    "other attributes": lambda array: array["attributes"].update(note="mine"),
    "a fill value": lambda array: array.update(fill_value="NaN"),
}


@pytest.mark.parametrize("edit", sorted(HARMLESS))
async def test_other_spellings_of_the_same_metadata_are_read(anchor: Anchor, edit: str) -> None:
    await anchor.edit(ARRAY, HARMLESS[edit])
    assert len(await anchor.read()) == 3


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"null", b"{", b"\xff", b"[" * 100_000, b'{"a":' + b"9" * 5000 + b"}"]
)
@pytest.mark.parametrize("name", ["zarr.json", ARRAY])
async def test_metadata_that_is_no_object(anchor: Anchor, name: str, data: bytes) -> None:
    await anchor.put(name, data)
    await anchor.seal_again()
    error = await anchor.refused()
    assert (error.code, error.where) == ("bad_anchor", anchor.key(name))


async def test_large_metadata_is_refused_unfetched(anchor: Anchor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltastore.anchors.opening.TABLE_BYTES", 300)
    error = await anchor.refused()
    assert (error.code, error.where) == ("bad_anchor", anchor.key(ARRAY))


@pytest.mark.spec("DS071", "DS100")
async def test_every_breach_names_its_rule(anchor: Anchor) -> None:
    whole: list[float] = [1 << 20, 8, 8]  # chunks of (1, 4, 8): twice the places that a shard may have
    await anchor.edit(ARRAY, lambda array: shard_shape(array, whole))
    error = await anchor.refused()
    assert (error.code, error.rule, error.where) == ("bad_anchor", "DS100", anchor.key(ARRAY))
    await anchor.edit(ARRAY, lambda array: shard_shape(array, [1 << 20, 4, 8]))
    assert (await anchor.refused()).rule == "DS072"  # a shard for all of it is not in the inventory
    await anchor.edit(ARRAY, lambda array: array.update(data_type="int16"))
    assert (await anchor.refused()).rule == "DS071"
    await anchor.edit("zarr.json", GROUP_EDITS[sorted(GROUP_EDITS)[0]])
    assert (await anchor.refused()).rule == "DS071"
