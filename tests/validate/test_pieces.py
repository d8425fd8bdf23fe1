"""Objects are looked at piece by piece: whatever the pieces are, nothing is missed and nothing else found."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import numpy as np
import pytest

from deltastore.anchors.chunk_sums import SUMS_KEY, split_sums
from deltastore.anchors.opening import open_anchor
from deltastore.errors import CorruptError
from deltastore.format.pack import index_bytes, pack_key
from deltastore.format.records import AnchorRecord, DeltaRecord, PackRef
from deltastore.format.table import TensorTable
from deltastore.log import Log
from deltastore.replay import read_table
from deltastore.stores.memory import MemoryStore
from deltastore.validate.objects.anchors import shards_of
from deltastore.validate.objects.packs import check_pack
from deltastore.validate.objects.room import Room
from deltastore.validate.objects.streamed import Named, StreamedObject, cut
from tests.doubles.models import cut_table, small_model
from tests.doubles.stores import WatchedStore, flipped, memory_store
from tests.doubles.training import Trainer

PIECES = [(1, 1), (40, 2), (100, 3), (400, 7), (1 << 20, 1 << 20)]


class TestCutting:
    """Where an object is cut."""

    @pytest.mark.parametrize("seed", range(20))
    def test_pieces_cover_everything_and_cut_no_part(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        bounds = np.cumsum(random.integers(1, 9, 2 * random.integers(1, 30)))
        starts, ends = bounds[0::2], bounds[1::2]
        if seed % 2:
            ends = np.append(starts[1:], ends[-1])  # no gaps
        total, piece = int(ends[-1] + random.integers(0, 20)), int(random.integers(1, 25))
        cuts = list(cut(0, total, starts, ends, piece))
        assert cuts[-1] == total
        assert cuts == sorted(set(cuts))
        longest = max(piece, int((ends - starts).max()))
        for low, high in zip([0, *cuts], cuts, strict=False):
            assert high - low <= longest
            assert not ((starts < high) & (ends > high)).any()

    def test_an_empty_object_is_one_piece_and_no_bytes_more_are_none(self) -> None:
        assert list(cut(0, 0, (), (), 8)) == [0]
        assert list(cut(5, 5, (), (), 8)) == []
        assert list(cut(5, 6, (), (), 8)) == [6]


class Streams:
    """A delta in two packs and its anchor, and what they say."""

    def __init__(
        self, store: MemoryStore, table: TensorTable, delta: DeltaRecord, anchor: AnchorRecord
    ) -> None:
        self.store = store
        self.table = table
        self.delta = delta
        self.anchor = anchor

    @classmethod
    async def make(cls) -> Streams:
        store = memory_store()
        trainer = await Trainer.create(
            store, small_model(), table=cut_table(small_model(), 32), pack_bytes=1 << 20
        )
        await trainer.step(200)
        log = Log(store)
        delta, anchor = await log.manifest(1), await log.manifest(0)
        assert isinstance(delta, DeltaRecord)
        assert isinstance(anchor, AnchorRecord)
        return cls(store, await read_table(store, delta.table), delta, anchor)


async def looked_at(
    streams: Streams, pack: PackRef, data: bytes, piece: int, block: int
) -> CorruptError | None:
    store = memory_store()
    await store.put(pack_key(1, pack.sha256), data)
    try:
        await check_pack(store, 1, pack, streams.table, piece=piece, block=block)
    except CorruptError as error:
        return error
    return None


class TestPacks:
    """Packs, whatever the pieces of the body and the blocks of the index are."""

    @pytest.mark.parametrize(("piece", "block"), PIECES)
    async def test_a_sound_pack(self, piece: int, block: int) -> None:
        streams = await Streams.make()
        spy, total = WatchedStore(streams.store), 0
        for pack in streams.delta.packs:
            checked = await check_pack(spy, 1, pack, streams.table, piece=piece, block=block)
            assert (checked.rows, checked.nbytes) == (pack.rows, pack.bytes)
            total += checked.difference
            operations = {call.operation for call in spy.calls}
            assert operations == ({"get"} if pack.bytes <= piece else {"get_range"})
        said = int(streams.delta.digest, 16) - int(streams.anchor.digest, 16)
        assert (total - said) % (1 << 64) == 0

    @pytest.mark.parametrize(("piece", "block"), PIECES)
    async def test_a_flipped_bit_anywhere(self, piece: int, block: int) -> None:
        streams = await Streams.make()
        pack = streams.delta.packs[0]
        data = await streams.store.get(pack_key(1, pack.sha256), limit=1 << 20)
        for at in {*range(0, len(data), 97), *range(64), len(data) - 1}:
            error = await looked_at(streams, pack, flipped(data, at, at % 8), piece, block)
            assert error is not None
            assert (error.code, error.rule) == ("bad_hash", "DS061"), "whether it is the pack comes first"
            if at >= index_bytes(pack.rows):
                assert error.offset is not None, "the damaged patch"
                assert error.offset <= at
                assert error.tensor in {array.pattern for array in streams.table.arrays}

    @pytest.mark.parametrize(("piece", "block"), PIECES)
    async def test_of_two_wrong_patches_the_first_is_named(self, piece: int, block: int) -> None:
        streams = await Streams.make()
        pack = streams.delta.packs[0]
        data = await streams.store.get(pack_key(1, pack.sha256), limit=1 << 20)
        start = index_bytes(pack.rows)
        wrong = flipped(flipped(data, len(data) - 1), start)
        named = pack.model_copy(update={"sha256": hashlib.sha256(wrong).hexdigest()})
        error = await looked_at(streams, named, wrong, piece, block)
        assert error is not None
        assert (error.code, error.rule, error.offset) == ("bad_hash", "DS044", start)

    async def test_an_index_that_is_another_one_when_it_is_read_again(self) -> None:
        streams = await Streams.make()
        pack = streams.delta.packs[0]
        key = pack_key(1, pack.sha256)

        class Fickle(WatchedStore):
            async def get_range(self, key: str, start: int, length: int) -> bytes:
                data = await super().get_range(key, start, length)
                again = len([call for call in self.calls if call.operation == "get_range"]) > 2
                return flipped(data, 30) if again and start < index_bytes(pack.rows) else data

        assert pack.rows > 3
        with pytest.raises(CorruptError) as caught:
            await check_pack(Fickle(streams.store), 1, pack, streams.table, piece=1, block=pack.rows - 1)
        assert (caught.value.code, caught.value.where) == ("bad_hash", key)


class TestShards:
    """Shards, whatever the pieces are."""

    @pytest.mark.parametrize("piece", [1, 100, 1000, 1 << 20])
    async def test_sound_and_flipped(self, piece: int) -> None:
        streams = await Streams.make()
        opened = await open_anchor(streams.store, 0, streams.anchor.anchor, streams.table)
        assert opened.sums is not None
        sums = split_sums(await streams.store.get(opened.prefix + SUMS_KEY, limit=1 << 20), streams.table)
        for key, shard in shards_of(opened, streams.table, sums):
            entry = opened.entries[key]
            data = await streams.store.get(opened.prefix + key, limit=1 << 20)
            named = Named(key, entry.bytes, entry.sha256, "its inventory", "DS073")
            await shard.check(await holding(key, data), named, piece=piece)
            for at in range(0, len(data), max(len(data) // 5, 1)):
                wrong = flipped(data, at)
                with pytest.raises(CorruptError) as caught:
                    await shard.check(await holding(key, wrong), named, piece=piece)
                assert (caught.value.code, caught.value.rule) == ("bad_hash", "DS073")
                resealed = Named(key, len(data), hashlib.sha256(wrong).hexdigest(), "", "DS073")
                with pytest.raises(CorruptError) as caught:
                    await shard.check(await holding(key, wrong), resealed, piece=piece)
                assert (caught.value.code, caught.value.rule) == ("bad_anchor", "DS073")
                assert caught.value.offset is not None
                assert caught.value.offset <= at


async def holding(key: str, data: bytes) -> MemoryStore:
    store = memory_store()
    await store.put(key, data)
    return store


@pytest.mark.parametrize("size", [0, 1, 9, 100])
async def test_any_other_object_by_its_hash(size: int) -> None:
    data = bytes(range(size))
    named = Named("files/x", size, hashlib.sha256(data).hexdigest(), "a record", "DS063")
    for piece in (1, 10, 1000):
        await StreamedObject(await holding("files/x", data), named, piece=piece).finish()
        with pytest.raises(CorruptError) as caught:
            await StreamedObject(memory_store(), named, piece=piece).finish()
        assert caught.value.code == "lost_object"
        if size:
            for wrong, code in ((data[:-1], "bad_length"), (flipped(data, size - 1), "bad_hash")):
                with pytest.raises(CorruptError) as caught:
                    await StreamedObject(await holding("files/x", wrong), named, piece=piece).finish()
                assert caught.value.code == code


@pytest.mark.parametrize("together", [0, 1 << 20])
async def test_hashed_and_looked_at_in_one_thread_or_in_two(together: int) -> None:
    data = bytes(range(200))
    named = Named("files/x", len(data), hashlib.sha256(data).hexdigest(), "a record", "DS063")
    read = StreamedObject(await holding("files/x", data), named, piece=70, together=together)
    seen: list[tuple[int, bytes]] = []

    def look(piece: memoryview, start: int) -> None:
        seen.append((start, bytes(piece)))
        if start == 60:
            raise CorruptError("bad_patch", "wrong", where="files/x", rule="DS034", offset=61)

    for end in (60, 120, 180):
        await read.advance(end, look)
    assert seen == [(0, data[:60]), (60, data[60:120])], "nothing is looked at after what was wrong"
    with pytest.raises(CorruptError) as caught:
        await read.finish()
    assert (caught.value.rule, caught.value.offset) == ("DS034", 61), "all was hashed"


class TestRoom:
    """Who asks first gets room first; nobody waits for what nobody will free."""

    async def test_neither_more_jobs_nor_more_memory_than_there_is(self) -> None:
        room, active, most = Room(3, 100), [0, 0], [0, 0]
        random = np.random.default_rng(0)

        async def work(nbytes: int) -> None:
            async with room.of(nbytes):
                for place, more in enumerate((1, min(nbytes, 100))):
                    active[place] += more
                    most[place] = max(most[place], active[place])
                await asyncio.sleep(0)
                active[0] -= 1
                active[1] -= min(nbytes, 100)

        await asyncio.gather(*(work(int(nbytes)) for nbytes in random.integers(1, 150, 200)))
        assert active == [0, 0]
        assert most[0] == 3
        assert most[1] <= 100

    async def test_whoever_gives_up_leaves_no_trace(self) -> None:
        room = Room(1, 10)
        entered: list[Any] = []

        async def work(name: int) -> None:
            async with room.of(10):
                entered.append(name)
                await asyncio.sleep(0.001)

        tasks = [asyncio.create_task(work(number)) for number in range(6)]
        await asyncio.sleep(0)
        for number in (0, 2, 3):
            tasks[number].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert entered == [0, 1, 4, 5]
        async with room.of(10):
            pass
