"""The sums of an anchor's chunks: what the object holds, and what they find out that checksums do not."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest

from deltastore.anchors import AnchorWeights, write_anchor
from deltastore.anchors.chunk_sums import SUMS_KEY
from deltastore.anchors.portion import AnchorPortion
from deltastore.errors import CorruptError
from deltastore.kernels.rows import chunk_list
from deltastore.stores.memory import MemoryStore
from tests.anchors.damaged import Anchor
from tests.anchors.models import HeldWeights, assert_same_bits, cut_table, hostile_weights
from tests.doubles.stores import WatchedStore

CHUNK = 32 * 2 + 4


@pytest.fixture(autouse=True)
def _by_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltastore.anchors.portion._SMALL_BYTES", 0)
    monkeypatch.setattr("deltastore.anchors.portion._GAP_BYTES", 0)


async def ranged(anchor: Anchor, *chunks: int, store: Any = None) -> list[tuple[int, bytes]]:
    """Chunks of the anchor's array, each the only one of its shard, so that all are fetched by ranges."""
    portion = await AnchorPortion.open(store or anchor.store, 1, anchor.ref, anchor.weights.table)
    wanted = chunk_list([0] * len(chunks), list(chunks))
    return [
        (chunk, bits.tobytes())
        async for one in portion.fetch(wanted, ahead=2)
        for _, chunk, bits in one.chunks
    ]


async def refused(anchor: Anchor, *chunks: int, store: Any = None) -> CorruptError:
    with pytest.raises(CorruptError) as caught:
        await ranged(anchor, *chunks, store=store)
    return caught.value


@pytest.mark.spec("DS074")
@pytest.mark.usefixtures("small_shards")
async def test_the_object_is_the_hash_of_every_chunk_as_it_is_stored(store: MemoryStore) -> None:
    weights = hostile_weights(24)
    ref = await write_anchor(store, 1, weights)
    expected = b""
    for number, array in enumerate(weights.table.arrays):
        prefix = f"{ref.prefix(1)}array-{number:05d}/"
        meta = json.loads(await store.get(f"{prefix}zarr.json", limit=1 << 20))
        shard = meta["chunk_grid"]["configuration"]["chunk_shape"]
        per = [whole // step for whole, step in zip(shard, array.chunk, strict=True)]
        size = int(np.prod(array.chunk)) * array.element.itemsize + 4
        for cell in np.ndindex(array.grid.counts):
            at = [one // count for one, count in zip(cell, per, strict=True)]
            inside = [one % count for one, count in zip(cell, per, strict=True)]
            data = await store.get(f"{prefix}c/{'/'.join(map(str, at))}", limit=1 << 20)
            index = np.frombuffer(data, "<u8", 2 * int(np.prod(per)), len(data) - 4 - 16 * int(np.prod(per)))
            offset, length = index.reshape(*per, 2)[tuple(inside)].tolist()
            assert length == size
            expected += hashlib.sha256(data[offset : offset + size]).digest()[:16]
    assert await store.get(ref.prefix(1) + SUMS_KEY, limit=1 << 20) == expected


class OtherChunk(WatchedStore):
    """Answers with the bytes of the chunk beside the one that is asked for, whose checksum is right."""

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return (
            await super().get_range(key, (start + CHUNK) % (2 * CHUNK), length)
            if length == CHUNK
            else (await super().get_range(key, start, length))
        )


@pytest.mark.spec("DS074")
async def test_another_chunk_of_the_same_object_is_refused(anchor: Anchor) -> None:
    lying = OtherChunk(anchor.store)
    for chunk in range(6):
        error = await refused(anchor, chunk, store=lying)
        assert (error.code, error.rule, error.tensor) == ("bad_anchor", "DS074", "w.*")
        assert error.where == anchor.key(f"array-00000/c/{chunk // 2}/0/0")
        assert error.offset == chunk % 2 * CHUNK
    assert len(lying.keys("get_range")) == 2 * 6


async def without_sums(anchor: Anchor) -> None:
    await anchor.store.delete(anchor.key(SUMS_KEY))
    await anchor.seal_again()


@pytest.mark.spec("DS073", "DS074")
async def test_an_anchor_without_sums_is_read_as_ever(anchor: Anchor) -> None:
    expected = await ranged(anchor, 1, 2, 5)
    await without_sums(anchor)
    assert await ranged(anchor, 1, 2, 5) == expected
    assert (await anchor.read())["w.2"].tobytes() == np.arange(128, 192, dtype="<u2").tobytes()
    plan = await (await AnchorPortion.open(anchor.store, 1, anchor.ref, anchor.weights.table)).plan(
        chunk_list([0], [1])
    )
    assert (plan.sums_bytes, plan.requests - plan.opening_requests) == (0, 2)
    # Its checksums alone do not tell one chunk from another.
    ((chunk, bits),) = await ranged(anchor, 1, store=OtherChunk(anchor.store))
    assert (chunk, bits) == (1, np.arange(32, dtype="<u2").tobytes())


@pytest.mark.spec("DS073", "DS074")
@pytest.mark.parametrize("sealed", [False, True])
async def test_sums_of_something_else(anchor: Anchor, sealed: bool) -> None:
    def swapped(data: bytes) -> bytes:
        return data[16:32] + data[:16] + data[32:]

    await anchor.change(SUMS_KEY, swapped)
    if sealed:
        await anchor.seal_again()
        assert [chunk for chunk, _ in await ranged(anchor, 2, 5)] == [2, 5]
    error = await refused(anchor, 1)
    named = ("bad_anchor", "DS074", anchor.key("array-00000/c/0/0/0"))
    assert (error.code, error.rule, error.where) == (
        named if sealed else ("bad_hash", "DS073", anchor.key(SUMS_KEY))
    )


@pytest.mark.spec("DS074")
@pytest.mark.parametrize("length", [0, 16, 5 * 16, 6 * 16 - 1, 6 * 16 + 1, 7 * 16])
async def test_sums_of_another_length_are_refused_unfetched(anchor: Anchor, length: int) -> None:
    await anchor.change(SUMS_KEY, lambda data: (2 * data)[:length])
    await anchor.seal_again()
    await anchor.store.delete(anchor.key(SUMS_KEY))
    for error in (await refused(anchor, 1), await anchor.refused()):
        assert (error.code, error.rule, error.where) == ("bad_anchor", "DS074", anchor.key(SUMS_KEY))


@pytest.mark.spec("DS100")
async def test_sums_above_their_limit(anchor: Anchor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltastore.anchors.opening.SUMS_BYTES", 95)
    assert (await anchor.refused()).rule == "DS100"
    monkeypatch.setattr("deltastore.anchors.chunk_sums.SUMS_BYTES", 95)
    store = MemoryStore("memory://anchors-under-test")
    ref = await write_anchor(store, 2, anchor.weights)
    assert await store.stat(ref.prefix(2) + SUMS_KEY) is None
    await assert_same_bits(await AnchorWeights.open(store, 2, ref, anchor.weights.table), anchor.weights)


async def test_lost_sums(anchor: Anchor) -> None:
    await anchor.store.delete(anchor.key(SUMS_KEY))
    error = await refused(anchor, 1)
    assert (error.code, error.rule, error.where) == ("lost_object", "DS063", anchor.key(SUMS_KEY))


async def test_a_model_without_chunks_has_no_sums(store: MemoryStore) -> None:
    weights = HeldWeights(cut_table([], 8), {})
    ref = await write_anchor(store, 1, weights)
    keys = [info.key.removeprefix(ref.prefix(1)) async for info in store.list("")]
    assert keys == ["inventory.json", "zarr.json"]
    await AnchorWeights.open(store, 1, ref, weights.table)


async def test_sums_are_fetched_once_and_only_for_ranges(anchor: Anchor) -> None:
    watched = WatchedStore(anchor.store)
    await ranged(anchor, 0, 2, 4, store=watched)
    assert watched.keys("get").count(anchor.key(SUMS_KEY)) == 1
    watched.forget()
    await ranged(anchor, 0, 1, 2, 3, store=watched)  # all that two shards have
    assert anchor.key(SUMS_KEY) not in watched.keys("get")
