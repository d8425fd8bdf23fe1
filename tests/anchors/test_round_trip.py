"""Anchors give back every bit, and put exactly what their inventory says."""

from __future__ import annotations

import asyncio
import hashlib
import json

import numpy as np
import pytest

from deltastore.anchors import AnchorWeights, write_anchor
from deltastore.anchors.chunk_sums import SUMS_KEY
from deltastore.anchors.inventory import INVENTORY_KEY, fetch_inventory
from deltastore.errors import InputError, StoreError
from deltastore.format.dtypes import DTYPES
from deltastore.format.records import AnchorRef
from deltastore.format.table import TensorSpec, TensorTable
from deltastore.layout.weights import Bits, chunks_of
from deltastore.stores.base import Data
from deltastore.stores.local import LocalStore
from deltastore.stores.memory import MemoryStore
from tests.anchors.models import HeldWeights, assert_same_bits, cut_table, hostile_weights


class CountingStore(MemoryStore):
    """Counts fetches of each object, and how many are under way at once."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.fetched: list[str] = []
        self.putting = self.most_putting = 0

    async def get(self, key: str, *, limit: int) -> bytes:
        self.fetched.append(key)
        return await super().get(key, limit=limit)

    async def put(self, key: str, data: Data) -> None:
        self.putting += 1
        self.most_putting = max(self.putting, self.most_putting)
        await asyncio.sleep(0.01)
        await super().put(key, data)
        self.putting -= 1


class FullStore(MemoryStore):
    """Refuses everything but the first few objects."""

    room = 5

    async def put(self, key: str, data: Data) -> None:
        if self.room == 0:
            raise StoreError("store_failed", "the disk is full")
        self.room -= 1
        await super().put(key, data)


async def keys_of(store: MemoryStore | LocalStore, prefix: str = "") -> list[str]:
    return [info.key async for info in store.list(prefix)]


@pytest.mark.parametrize("limit", [1 << 20, 16, 5])
@pytest.mark.parametrize("dtype", sorted(DTYPES))
async def test_every_bit_of_every_element_type(store: MemoryStore, dtype: str, limit: int) -> None:
    weights = hostile_weights(limit, [dtype])
    ref = await write_anchor(store, 7, weights)
    await assert_same_bits(await AnchorWeights.open(store, 7, ref, weights.table), weights)


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize(("uploads", "fetches"), [(1, 1), (3, 1), (2, 4)])
async def test_many_shards_in_a_folder(local: LocalStore, uploads: int, fetches: int) -> None:
    weights = hostile_weights(24, ["BF16", "F32", "U8"])
    ref = await write_anchor(local, 7, weights, uploads=uploads)
    assert len(await keys_of(local)) > 30
    anchor = await AnchorWeights.open(local, 7, ref, weights.table, fetches=fetches)
    await assert_same_bits(anchor, weights)


async def test_a_model_without_tensors(store: MemoryStore) -> None:
    weights = HeldWeights(cut_table([], 1), {})
    ref = await write_anchor(store, 0, weights)
    anchor = await AnchorWeights.open(store, 0, ref, weights.table)
    assert [chunk async for chunk in chunks_of(anchor)] == []


async def test_chunks_larger_than_their_array(store: MemoryStore) -> None:
    table = cut_table([TensorSpec("w", (3, 5), DTYPES["I16"])], 15)
    wide = table.arrays[0].model_copy(update={"chunk": (2, 4, 8)})
    table = TensorTable.seal_new(slabs=0, arrays=(wide,))
    weights = HeldWeights(table, {"w": np.arange(15, dtype="<u2").reshape(3, 5)})
    ref = await write_anchor(store, 1, weights)
    await assert_same_bits(await AnchorWeights.open(store, 1, ref, table), weights)


async def test_the_inventory_names_every_object_with_its_hash(store: MemoryStore) -> None:
    weights = hostile_weights(16, ["BF16", "I64"])
    ref = await write_anchor(store, 12, weights, attempt="0a" * 16)
    prefix = "anchors/00000000000000000012/" + "0a" * 16 + "/"
    assert ref.prefix(12) == prefix
    entries = await fetch_inventory(store, 12, ref)
    assert sorted(prefix + key for key in [*entries, INVENTORY_KEY]) == await keys_of(store)
    for key, entry in entries.items():
        data = await store.get(prefix + key, limit=1 << 20)
        assert (len(data), hashlib.sha256(data).hexdigest()) == (entry.bytes, entry.sha256)
    inventory = await store.get(prefix + INVENTORY_KEY, limit=1 << 20)
    assert len(inventory) == ref.inventory_bytes
    assert json.loads(inventory)["sha256"] == ref.inventory_sha256


async def test_metadata_says_what_the_arrays_are(store: MemoryStore) -> None:
    weights = hostile_weights(1 << 20, ["BOOL", "BF16"])
    ref = await write_anchor(store, 3, weights)
    group = json.loads(await store.get(ref.prefix(3) + "zarr.json", limit=1 << 20))
    assert group["attributes"]["deltastore"] == {"format": 1, "table": weights.table.sha256, "version": 3}
    for number, array in enumerate(weights.table.arrays):
        path = f"{ref.prefix(3)}array-{number:05d}/zarr.json"
        metadata = json.loads(await store.get(path, limit=1 << 20))
        assert metadata["data_type"] == {"BOOL": "uint8", "BF16": "bfloat16"}[array.dtype]
        assert metadata["shape"] == [array.count, *array.shape]
        told = metadata["attributes"]["deltastore"]
        assert (told["dtype"], told["pattern"]) == (array.dtype, array.pattern)
        assert told["members"] == json.loads(array.model_dump_json())["members"]


async def test_equal_weights_and_attempts_give_equal_anchors(store: MemoryStore) -> None:
    weights = hostile_weights(16, ["BF16"])
    refs = {await write_anchor(store, 1, weights, attempt="12" * 16) for _ in range(2)}
    other = await write_anchor(store, 1, weights)
    assert len(refs) == 1
    assert other.inventory_sha256 == refs.pop().inventory_sha256
    assert other.attempt != "12" * 16


@pytest.mark.spec("DS070")
async def test_chunks_of_zeros_are_stored(store: MemoryStore) -> None:
    bits: Bits = np.zeros((64, 32), dtype="<u2")
    weights = HeldWeights(cut_table([TensorSpec("w", (64, 32), DTYPES["BF16"])], 256), {"w": bits})
    ref = await write_anchor(store, 1, weights)
    entries = await fetch_inventory(store, 1, ref)
    chunks = len(weights.table.arrays[0].grid)
    assert chunks == 8
    assert entries["array-00000/c/0/0/0"].bytes == chunks * (512 + 4 + 16) + 4


@pytest.mark.usefixtures("small_shards")
async def test_reading_in_order_fetches_every_object_once_and_no_sums(store: MemoryStore) -> None:
    weights = hostile_weights(24, ["BF16"])
    ref = await write_anchor(store, 1, weights)
    counting = CountingStore(store.url)
    anchor = await AnchorWeights.open(counting, 1, ref, weights.table)
    await assert_same_bits(anchor, weights)
    sums = ref.prefix(1) + SUMS_KEY
    assert sorted([*counting.fetched, sums]) == await keys_of(store)
    assert anchor.objects == len(counting.fetched)


@pytest.mark.usefixtures("small_shards")
async def test_readers_in_step_share_one_fetch(store: MemoryStore) -> None:
    weights = hostile_weights(24, ["BF16"])
    ref = await write_anchor(store, 1, weights)
    counting = CountingStore(store.url)
    anchor = await AnchorWeights.open(counting, 1, ref, weights.table)
    opened = len(counting.fetched)
    first, second = await asyncio.gather(anchor.read(1, 0), anchor.read(1, 0))
    assert first.tobytes() == second.tobytes()
    assert len(counting.fetched) == opened + 1


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("uploads", [1, 2, 4])
async def test_uploads_are_as_many_at_once_as_asked_for(store: MemoryStore, uploads: int) -> None:
    weights = hostile_weights(64, ["F32"])
    counting = CountingStore(store.url)
    await write_anchor(counting, 1, weights, uploads=uploads)
    # The metadata of the next array may be put while shards are.
    assert counting.most_putting in (uploads, uploads + 1)


async def test_progress_adds_up_to_the_model(store: MemoryStore) -> None:
    weights = hostile_weights(16, ["F64", "U8"])
    done: list[int] = []
    await write_anchor(store, 1, weights, progress=done.append)
    assert sum(done) == weights.table.nbytes
    assert len(done) > 3


async def test_what_is_read_cannot_be_written_to(store: MemoryStore) -> None:
    weights = hostile_weights(16, ["BF16"])
    ref = await write_anchor(store, 1, weights)
    bits = await (await AnchorWeights.open(store, 1, ref, weights.table)).read(1, 0)
    with pytest.raises(ValueError, match="read-only"):
        bits[...] = 0


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("uploads", [1, 3])
async def test_a_failing_store_is_the_error_and_leaves_no_inventory(store: MemoryStore, uploads: int) -> None:
    full = FullStore(store.url)
    with pytest.raises(StoreError, match="the disk is full"):
        await write_anchor(full, 1, hostile_weights(24, ["BF16"]), uploads=uploads)
    assert [key for key in await keys_of(store) if key.endswith(INVENTORY_KEY)] == []


async def test_failing_weights_are_the_error(store: MemoryStore) -> None:
    weights = hostile_weights(16, ["BF16"])
    with pytest.raises(KeyError, match=r"BF16\.layers\.0\.weight"):
        await write_anchor(store, 1, HeldWeights(weights.table, {}))


@pytest.mark.parametrize("attempt", ["", "0A" * 16, "../" * 10, "0" * 31, "0" * 33])
async def test_a_bad_attempt_is_refused(store: MemoryStore, attempt: str) -> None:
    with pytest.raises(InputError) as caught:
        await write_anchor(store, 1, hostile_weights(16, ["U8"]), attempt=attempt)
    assert caught.value.code == "bad_argument"
    assert await keys_of(store) == []


async def test_no_uploads_and_no_fetches_are_refused(store: MemoryStore) -> None:
    weights = hostile_weights(16, ["U8"])
    with pytest.raises(InputError, match="uploads is 0"):
        await write_anchor(store, 1, weights, uploads=0)
    ref = AnchorRef(attempt="0" * 32, inventory_sha256="0" * 64, inventory_bytes=1)
    with pytest.raises(InputError, match="fetches is 0"):
        await AnchorWeights.open(store, 1, ref, weights.table, fetches=0)


async def test_too_many_objects_are_refused_before_the_first(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltastore.anchors.writing.INVENTORY_OBJECTS", 5)
    with pytest.raises(InputError, match="objects, above 5"):
        await write_anchor(store, 1, hostile_weights(16, ["BF16"]))
    assert await keys_of(store) == []
