"""An anchor that is not what its record says is an error with a name, and gives no bits."""

from __future__ import annotations

import json

import numpy as np
import pytest

from deltastore.anchors import AnchorWeights
from deltastore.errors import CorruptError, UnsupportedError
from deltastore.format.canonical import canonical_bytes, seal
from tests.anchors.damaged import Anchor, Change

SHARDS = ("array-00000/c/0/0/0", "array-00000/c/1/0/0", "array-00000/c/2/0/0")
ARRAY = "array-00000/zarr.json"


async def test_the_anchor_is_read_before_it_is_damaged(anchor: Anchor) -> None:
    found = await anchor.read()
    assert found["w.2"].tobytes() == np.arange(128, 192, dtype="<u2").tobytes()
    assert all([await anchor.get(shard) for shard in SHARDS])


DAMAGE: dict[str, tuple[Change, str]] = {
    "cut short": (lambda data: data[:-1], "bad_length"),
    "emptied": (lambda data: b"", "bad_length"),
    "too long": (lambda data: data + b"\0", "too_large"),
    "first bit": (lambda data: bytes([data[0] ^ 1]) + data[1:], "bad_hash"),
    "last bit": (lambda data: data[:-1] + bytes([data[-1] ^ 128]), "bad_hash"),
}


@pytest.mark.parametrize("damage", sorted(DAMAGE))
@pytest.mark.parametrize("name", ["zarr.json", ARRAY, *SHARDS])
@pytest.mark.spec("DS073")
async def test_a_damaged_object(anchor: Anchor, name: str, damage: str) -> None:
    change, code = DAMAGE[damage]
    await anchor.change(name, change)
    error = await anchor.refused()
    assert (error.code, error.where) == (code, anchor.key(name))


@pytest.mark.parametrize("name", ["inventory.json", "zarr.json", ARRAY, *SHARDS])
async def test_a_lost_object(anchor: Anchor, name: str) -> None:
    await anchor.store.delete(anchor.key(name))
    error = await anchor.refused()
    assert (error.code, error.where) == ("lost_object", anchor.key(name))


async def test_swapped_shards(anchor: Anchor) -> None:
    first, second = await anchor.get(SHARDS[0]), await anchor.get(SHARDS[1])
    assert len(first) == len(second)
    await anchor.put(SHARDS[0], second)
    await anchor.put(SHARDS[1], first)
    assert (await anchor.refused()).code == "bad_hash"


async def test_shards_before_the_bad_one_are_still_read(anchor: Anchor) -> None:
    await anchor.change(SHARDS[2], lambda data: data[:-1])
    opened = await AnchorWeights.open(anchor.store, 1, anchor.ref, anchor.weights.table)
    assert (await opened.read(0, 0)).tobytes() == (await anchor.weights.read(0, 0)).tobytes()
    for _ in range(2):
        with pytest.raises(CorruptError):
            await opened.read(0, 4)
    assert (await opened.read(0, 2)).tobytes() == (await anchor.weights.read(0, 2)).tobytes()


@pytest.mark.parametrize("name", ["zarr.json", ARRAY, *SHARDS])
@pytest.mark.spec("DS072")
async def test_an_object_that_the_inventory_leaves_out(anchor: Anchor, name: str) -> None:
    await anchor.seal_again(without=name)
    error = await anchor.refused()
    assert (error.code, error.where) == ("bad_anchor", anchor.key(name))


@pytest.mark.parametrize("extra", ["array-00000/c/3/0/0", "array-00001/zarr.json", "note"])
async def test_an_object_that_the_table_has_no_place_for(anchor: Anchor, extra: str) -> None:
    await anchor.seal_again(extra=extra)
    error = await anchor.refused()
    assert (error.code, error.where) == ("bad_anchor", anchor.key(extra))


@pytest.mark.parametrize("damage", sorted(DAMAGE))
async def test_a_damaged_inventory(anchor: Anchor, damage: str) -> None:
    change, code = DAMAGE[damage]
    await anchor.change("inventory.json", change)
    error = await anchor.refused()
    assert error.code == ("bad_json" if code == "bad_hash" else code)


async def test_another_inventory_of_the_same_length(anchor: Anchor) -> None:
    fields = json.loads(await anchor.get("inventory.json"))
    fields["objects"][0]["sha256"] = "0" * 64
    await anchor.put("inventory.json", canonical_bytes(seal(fields)))
    assert (await anchor.refused()).code == "bad_hash"


async def test_an_inventory_that_does_not_match_its_own_seal(anchor: Anchor) -> None:
    fields = json.loads(await anchor.get("inventory.json"))
    fields["objects"][0]["sha256"] = "0" * 64
    await anchor.put("inventory.json", canonical_bytes(fields))
    assert (await anchor.refused()).code == "bad_hash"


async def test_an_inventory_of_a_newer_format(anchor: Anchor) -> None:
    fields = seal({**json.loads(await anchor.get("inventory.json")), "format": 2})
    await anchor.take(canonical_bytes(fields), fields["sha256"])
    error = await anchor.refused()
    assert isinstance(error, UnsupportedError)
    assert error.code == "newer_format"


async def test_an_inventory_key_cannot_leave_the_anchor(anchor: Anchor) -> None:
    fields = json.loads(await anchor.get("inventory.json"))
    fields["objects"][0]["key"] = "../" + fields["objects"][0]["key"]
    fields["objects"].sort(key=lambda entry: entry["key"])
    fields = seal(fields)
    await anchor.take(canonical_bytes(fields), fields["sha256"])
    assert (await anchor.refused()).code == "bad_json"


CHUNK = 32 * 2 + 4
SPAN = 2 * CHUNK


def with_entry(data: bytes, chunk: int, offset: int, length: int) -> bytes:
    """A shard of two chunks whose index says something else about one of them."""
    at = SPAN + 16 * chunk
    entry = offset.to_bytes(8, "little") + length.to_bytes(8, "little")
    return data[:at] + entry + data[at + 16 :]


@pytest.mark.parametrize(
    ("offset", "length"),
    [
        (SPAN - CHUNK + 1, CHUNK),
        (SPAN, CHUNK),
        (1 << 63, CHUNK),
        ((1 << 64) - CHUNK, CHUNK),
        (0, CHUNK - 1),
        (0, CHUNK + 1),
        (0, 0),
        (0, (1 << 64) - 1),
        ((1 << 64) - 1, (1 << 64) - 1),
    ],
)
@pytest.mark.spec("DS071")
async def test_an_index_that_points_outside_the_chunks(anchor: Anchor, offset: int, length: int) -> None:
    await anchor.change(SHARDS[1], lambda data: with_entry(data, 1, offset, length))
    await anchor.seal_again()
    error = await anchor.refused()
    assert (error.code, error.where) == ("bad_anchor", anchor.key(SHARDS[1]))


@pytest.mark.parametrize("length", [0, 4, 35])
async def test_a_shard_too_short_for_its_index(anchor: Anchor, length: int) -> None:
    await anchor.change(SHARDS[0], lambda data: data[:length])
    await anchor.seal_again()
    error = await anchor.refused()
    assert (error.code, error.where) == ("bad_anchor", anchor.key(SHARDS[0]))


async def test_a_shard_longer_than_all_its_chunks_is_refused_unfetched(anchor: Anchor) -> None:
    await anchor.change(SHARDS[0], lambda data: b"\0" + data)
    await anchor.seal_again()
    await anchor.store.delete(anchor.key(SHARDS[0]))
    assert (await anchor.refused()).code == "bad_anchor"
