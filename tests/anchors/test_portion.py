"""Some chunks of an anchor: what they are, how they are fetched, and that nothing wrong passes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import google_crc32c
import numpy as np
import pytest

from deltastore.anchors.portion import AnchorPortion
from deltastore.anchors.writing import write_anchor
from deltastore.errors import CorruptError
from deltastore.format.records import AnchorRef
from deltastore.format.table import TensorTable
from deltastore.kernels.rows import ChunkList, chunk_list
from deltastore.layout.live import LiveWeights
from deltastore.stores.base import Store
from tests.doubles.models import bf16, cut_table, small_model
from tests.doubles.stores import WatchedStore, memory_store

ROWS = 40
ENTRY = 16
INDEX = ROWS * ENTRY + 4


@pytest.fixture(autouse=True)
def _by_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltastore.anchors.portion._SMALL_BYTES", 0)
    monkeypatch.setattr("deltastore.anchors.portion._GAP_BYTES", 10)


async def anchored(model: dict[str, Any], limit: int) -> tuple[WatchedStore, TensorTable, AnchorRef]:
    store, table = WatchedStore(memory_store()), cut_table(model, limit)
    ref = await write_anchor(store, 3, LiveWeights(table, model))
    store.forget()
    return store, table, ref


async def fetched(
    store: WatchedStore, table: TensorTable, ref: AnchorRef, chunks: ChunkList
) -> dict[tuple[int, int], Any]:
    plan = await (await AnchorPortion.open(store, 3, ref, table)).plan(chunks)
    assert plan.index_bytes - plan.sums_bytes == store.fetched  # and no chunk
    store.forget()
    portion = await AnchorPortion.open(store, 3, ref, table)
    assert portion.opening_requests == len(store.calls)
    assert portion.opening_bytes == store.fetched
    found: dict[tuple[int, int], Any] = {}
    nbytes, requests = portion.opening_bytes, portion.opening_requests
    async with aclosing(portion.fetch(chunks, ahead=2)) as objects:
        async for one in objects:
            found.update({(array, chunk): bits for array, chunk, bits in one.chunks})
            nbytes, requests = nbytes + one.nbytes, requests + one.requests
    assert (nbytes, requests) == (store.fetched, len(store.calls)) == (plan.nbytes, plan.requests)
    assert plan.needed_bytes == sum(bits.nbytes for bits in found.values())
    return found


@pytest.mark.parametrize("limit", [4, 13, 1000])
async def test_any_chunks_of_a_mixed_model(limit: int) -> None:
    model = small_model()
    store, table, ref = await anchored(model, limit)
    live, random = LiveWeights(table, model), np.random.default_rng(limit)
    every = [(number, chunk) for number, array in enumerate(table.arrays) for chunk in range(len(array.grid))]
    for share in (0.1, 0.5, 1.0):
        some = [place for place in every if random.random() < share] or every[:1]
        store.forget()
        found = await fetched(store, table, ref, chunk_list(*zip(*some, strict=True)))
        assert sorted(found) == some
        for place in some:
            assert (found[place] == await live.read(*place)).all()


@pytest.mark.parametrize(
    ("wanted", "ranges"), [([3], 1), ([0, 1, 2], 1), ([39, 7], 2), ([1, 3, 5], 3), (range(31), None)]
)
async def test_chunks_side_by_side_are_one_range_and_most_of_an_object_is_all(
    wanted: list[int], ranges: int | None
) -> None:
    model = {"w": bf16(np.arange(ROWS * 8).reshape(ROWS, 8))}
    store, table, ref = await anchored(model, 8)
    found = await fetched(store, table, ref, chunk_list([0] * len(wanted), list(wanted)))
    for chunk in wanted:
        assert (found[0, chunk].reshape(-1) == model["w"].view(np.uint16)[chunk]).all()
    assert len(store.keys("get_range")) == (0 if ranges is None else 1 + ranges)


class KeepingStore(WatchedStore):
    """Remembers the bytes of every range that it gave."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.ranges: list[bytes] = []

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        self.ranges.append(await super().get_range(key, start, length))
        return self.ranges[-1]


async def test_chunks_are_not_held_beside_the_bytes_that_were_fetched() -> None:
    model = {"w": np.arange(ROWS * 8).reshape(ROWS, 8)}
    store, table, ref = await anchored(model, 8)
    keeping = KeepingStore(store)
    portion = await AnchorPortion.open(keeping, 3, ref, table)
    (one,) = [one async for one in portion.fetch(chunk_list([0, 0, 0], [7, 8, 30]))]
    for (_, chunk, bits), number in zip(one.chunks, (1, 1, 2), strict=True):
        assert np.shares_memory(bits, np.frombuffer(keeping.ranges[number], np.uint8))
        assert (bits.reshape(-1) == model["w"][chunk]).all()
        assert not bits.flags.writeable


class CountedList(np.ndarray[Any, Any]):
    """A list of chunks that counts how often one of its columns is taken."""

    taken = 0

    def __getitem__(self, key: Any) -> Any:
        CountedList.taken += isinstance(key, str)
        return super().__getitem__(key)


async def test_many_arrays_are_not_each_looked_for_in_the_list() -> None:
    model = {f"{letter}.w": bf16(np.zeros((2, number + 1))) for number, letter in enumerate("abcdefghij")}
    store, table, ref = await anchored(model, 8)
    assert len(table.arrays) == len(model)
    chunks = chunk_list(list(range(len(model))), [0] * len(model)).view(CountedList)
    portion = await AnchorPortion.open(store, 3, ref, table)
    assert len((await portion.plan(chunks)).objects) == len(model)
    assert CountedList.taken <= 4


def resealed(index: Callable[[Any], None]) -> Callable[[bytearray], None]:
    """Change the index of a shard, and make its checksum right again."""

    def damage(data: bytearray) -> None:
        entries = np.frombuffer(bytes(data[-INDEX:-4]), "<u8").reshape(-1, 2).copy()
        index(entries)
        data[-INDEX:-4] = entries.tobytes()
        data[-4:] = google_crc32c.value(entries.tobytes()).to_bytes(4, "little")

    return damage


def flipped(at: int) -> Callable[[bytearray], None]:
    def damage(data: bytearray) -> None:
        data[at] ^= 1

    return damage


def entry(chunk: int, offset: int, length: int) -> Callable[[Any], None]:
    def change(entries: Any) -> None:
        entries[chunk] = (offset, length)

    return change


DAMAGE = {
    "a byte of the chunk": flipped(2 * 20 + 3),
    "its checksum": flipped(2 * 20 + 17),
    "a byte of the index": flipped(-INDEX + 5),
    "the checksum of the index": flipped(-1),
    "a chunk that is left out": resealed(entry(2, (1 << 64) - 1, (1 << 64) - 1)),
    "a chunk of another size": resealed(entry(2, 40, 19)),
    "a chunk beyond the object": resealed(entry(2, 1 << 63, 20)),
    "a chunk inside the index": resealed(entry(2, ROWS * 20, 20)),
    "two chunks on each other": resealed(entry(2, 65, 20)),
}


@pytest.mark.spec("DS073", "DS100")
@pytest.mark.parametrize("name", DAMAGE)
async def test_damage_is_refused(name: str) -> None:
    model = {"w": bf16(np.arange(ROWS * 8).reshape(ROWS, 8))}
    store, table, ref = await anchored(model, 8)
    (key,) = [info.key async for info in store.list("anchors/") if "/c/" in info.key]
    data = bytearray(await store.get(key, limit=1 << 20))
    assert len(data) == ROWS * 20 + INDEX
    DAMAGE[name](data)
    await store.put(key, bytes(data))
    portion = await AnchorPortion.open(store, 3, ref, table)
    with pytest.raises(CorruptError) as caught:
        [one async for one in portion.fetch(chunk_list([0, 0], [2, 3]))]
    assert (caught.value.code, caught.value.where) == ("bad_anchor", key)


@pytest.mark.parametrize(("cut", "code"), [(100, "bad_length"), (None, "lost_object")])
async def test_a_short_object_and_a_lost_one(cut: int | None, code: str) -> None:
    model = {"w": bf16(np.arange(ROWS * 8).reshape(ROWS, 8))}
    store, table, ref = await anchored(model, 8)
    (key,) = [info.key async for info in store.list("anchors/") if "/c/" in info.key]
    data = await store.get(key, limit=1 << 20)
    portion = await AnchorPortion.open(store, 3, ref, table)
    await store.delete(key)
    if cut is not None:
        await store.put(key, data[:cut])
    with pytest.raises(CorruptError) as caught:
        [one async for one in portion.fetch(chunk_list([0], [2]))]
    assert (caught.value.code, caught.value.where) == (code, key)
