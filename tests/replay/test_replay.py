"""Replaying: the weights of any version, chunk by chunk, from an anchor and the deltas after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deltastore.anchors.chunk_sums import SUMS_KEY
from deltastore.errors import CorruptError, NotFoundError
from deltastore.format.limits import TABLE_BYTES
from deltastore.format.pack import pack_key
from deltastore.format.records import AnchorRecord, DeltaRecord, record_key, table_key
from deltastore.layout.weights import chunks_of, digest_of
from deltastore.log import Log
from deltastore.replay import ReplayedWeights, find_path, read_table
from deltastore.stores.base import Store
from deltastore.stream import AsyncStream
from tests.doubles.forging import append_foreign, forge
from tests.doubles.models import Bits, cut_table, differing, small_model, tiny_model
from tests.doubles.stores import WatchedStore, contents, flipped, memory_store, restore
from tests.doubles.training import Trainer


async def replayed(store: Store, version: int | None) -> Bits:
    """Every tensor of a version, put together from its chunks."""
    async with await AsyncStream.open(store) as stream:
        weights = await stream.weights(version)
    table = weights.table
    arrays: list[np.ndarray[Any, Any]] = [
        np.zeros(array.grid.extent, array.element.storage) for array in table.arrays
    ]
    async for number, _, box, found in chunks_of(weights):
        assert found.shape == box.size
        arrays[number][box.slices] = found
    return {name: arrays[array][member, ...] for name, (array, member) in table.places.items()}


@pytest.mark.parametrize(("limit", "slabs"), [(4, 0), (16, 2), (1 << 20, 0)])
async def test_every_version_of_a_stream_with_anchors_and_rollbacks(limit: int, slabs: int) -> None:
    model = small_model()
    trainer = await Trainer.create(
        memory_store(), model, table=cut_table(model, limit, slabs), pack_bytes=300
    )
    await trainer.steps(3, 20)
    await trainer.step(20, anchor=True)
    await trainer.publish()
    trainer.load(2)
    await trainer.reopen()
    await trainer.steps(2, 20)
    await append_foreign(trainer.store)
    trainer.model["model.scale"][...] = 9
    await trainer.reopen()
    await trainer.steps(2, 20)
    for version, wanted in trainer.history.items():
        assert differing(await replayed(trainer.store, version), wanted) == []
        manifest = await Log(trainer.store).manifest(version)
        path = await find_path(Log(trainer.store), manifest)
        weights = await ReplayedWeights.open(
            trainer.store, path, await read_table(trainer.store, manifest.table)
        )
        assert f"{await digest_of(weights):016x}" == manifest.digest
    assert differing(await replayed(trainer.store, None), trainer.history[max(trainer.history)]) == []


async def test_chunks_in_any_order_and_again() -> None:
    trainer = await Trainer.create(memory_store(), small_model(), table=cut_table(small_model(), 10))
    await trainer.steps(3, 30)
    async with await AsyncStream.open(trainer.store) as stream:
        weights = await stream.weights()
    places = [
        (number, chunk)
        for number, array in enumerate(weights.table.arrays)
        for chunk in range(len(array.grid))
    ]
    first = {place: (await weights.read(*place)).tobytes() for place in places}
    for place in np.random.default_rng(0).permutation(len(places)).tolist():
        assert (await weights.read(*places[place])).tobytes() == first[places[place]]


async def test_what_is_read_is_not_shared() -> None:
    """Writing into one answer cannot change the next one: it is read-only, or a copy."""
    trainer = await Trainer.create(memory_store(), tiny_model())
    await trainer.step(20)
    async with await AsyncStream.open(trainer.store) as stream:
        weights = await stream.weights()
    for number in range(len(weights.table.arrays)):
        before = await weights.read(number, 0)
        kept = before.tobytes()
        if before.flags.writeable:
            before[...] = 0
        assert (await weights.read(number, 0)).tobytes() == kept


async def test_only_the_patches_of_a_chunk_are_fetched() -> None:
    store = WatchedStore(memory_store())
    model = small_model()
    trainer = await Trainer.create(store, model, table=cut_table(model, 10), pack_bytes=1 << 20)
    await trainer.steps(3, 60)
    async with await AsyncStream.open(store) as stream:
        weights = await stream.weights()
        store.forget()
        await weights.read(0, 0)
    packs = [key for key in store.keys("get_range") if key.startswith("packs/")]
    assert len(packs) <= 3
    assert store.keys("get") == [key for key in store.keys("get") if key.startswith("anchors/")]


class TestPaths:
    """Which records lead to a version."""

    @pytest.fixture
    async def trainer(self) -> Trainer:
        trainer = await Trainer.create(memory_store(), tiny_model())
        await trainer.steps(2)
        await trainer.step(anchor=True)
        await trainer.steps(2)
        return trainer

    @pytest.mark.parametrize(
        ("version", "at", "anchor", "deltas"),
        [
            (0, None, 0, ()),
            (2, None, 0, (1, 2)),
            (3, None, 3, ()),
            (5, None, 3, (4, 5)),
            (5, 5, None, ()),
            (5, 4, None, (5,)),
            (5, 3, None, (4, 5)),
            (5, 2, 3, (4, 5)),
            (2, 5, 0, (1, 2)),
            (2, 0, None, (1, 2)),
            (0, 2, 0, ()),
        ],
    )
    async def test_the_shortest_way(
        self, trainer: Trainer, version: int, at: int | None, anchor: int | None, deltas: tuple[int, ...]
    ) -> None:
        log = Log(trainer.store)
        path = await find_path(log, await log.manifest(version), at=at)
        assert (None if path.anchor is None else path.anchor.version) == anchor
        assert tuple(record.version for record in path.deltas) == deltas
        assert path.target is None or path.target.version == version
        assert (path.target is None) == (at == version)

    @pytest.mark.spec("DS060")
    @pytest.mark.parametrize("wrong", ["base", "table"])
    async def test_a_base_that_is_not_there_or_has_another_table(self, trainer: Trainer, wrong: str) -> None:
        log = Log(trainer.store)
        last = await log.manifest(5)
        if wrong == "table":
            before = await log.manifest(4)
            await forge(trainer.store, before.slot, table="0" * 64)
            where = record_key(before.slot)
        else:
            trainer.history.clear()
            await trainer.step(version=9)
            last = await log.manifest(9)
            await forge(trainer.store, last.slot, base=7)
            where = record_key(last.slot)
        with pytest.raises(CorruptError) as caught:
            await find_path(log, await log.manifest(last.version))
        assert (caught.value.code, caught.value.where) == ("bad_chain", where)

    @pytest.mark.spec("DS063")
    async def test_a_record_that_is_gone(self, trainer: Trainer) -> None:
        log = Log(trainer.store)
        target = await log.manifest(5)
        assert isinstance(target, DeltaRecord)
        await trainer.store.delete(record_key(target.slot - 1))
        with pytest.raises(CorruptError) as caught:
            await find_path(log, target)
        assert (caught.value.code, caught.value.where) == ("lost_object", record_key(target.slot - 1))


class TestTables:
    """Fetching the tensor table."""

    @pytest.mark.spec("DS011", "DS063", "DS100")
    async def test_a_table_that_is_not_the_one(self) -> None:
        trainer = await Trainer.create(memory_store(), tiny_model())
        other = await Trainer.create(memory_store(), small_model())
        manifest = await Log(trainer.store).manifest(0)
        key = table_key(manifest.table)
        sound = await contents(trainer.store)
        foreign = (await contents(other.store))[table_key((await Log(other.store).manifest(0)).table)]
        for data, code in (
            (None, "lost_object"),
            (foreign, "bad_hash"),
            (sound[key][:-1], "bad_json"),
            (b"", "bad_json"),
            (b"[" * 100_000, "bad_json"),
            (b"x" * (TABLE_BYTES + 1), "too_large"),
        ):
            await trainer.store.delete(key)
            if data is not None:
                await trainer.store.put(key, data)
            with pytest.raises(CorruptError) as caught:
                await replayed(trainer.store, 0)
            assert (caught.value.code, caught.value.where) == (code, key)
        await restore(trainer.store, sound)
        assert differing(await replayed(trainer.store, 0), trainer.history[0]) == []


class TestDamage:
    """Stored bytes that are wrong are named and never returned."""

    @pytest.mark.spec("DS044", "DS061", "DS063", "DS073")
    async def test_every_object_on_the_way(self) -> None:
        model = small_model()
        trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 24), pack_bytes=500)
        await trainer.steps(2, 30)
        sound = await contents(trainer.store)
        slots = {key for key in sound if key.startswith("log/")}
        for key in sorted(key for key in set(sound) - slots if not key.endswith(SUMS_KEY)):
            for data in (
                None,
                sound[key][:-1],
                flipped(sound[key], len(sound[key]) * 2 // 3),
                flipped(sound[key], 9),
            ):
                await trainer.store.delete(key)
                if data is not None:
                    await trainer.store.put(key, data)
                with pytest.raises(CorruptError) as caught:
                    await replayed(trainer.store, 2)
                assert caught.value.where == key
            await restore(trainer.store, sound)
        assert differing(await replayed(trainer.store, 2), trainer.history[2]) == []

    @pytest.mark.spec("DS063")
    async def test_a_pack_that_vanishes_after_its_index_was_read(self) -> None:
        trainer = await Trainer.create(memory_store(), tiny_model())
        await trainer.step(20)
        record = await Log(trainer.store).manifest(1)
        assert isinstance(record, DeltaRecord)
        async with await AsyncStream.open(trainer.store) as stream:
            weights = await stream.weights()
        for pack in record.packs:
            await trainer.store.delete(pack_key(1, pack.sha256))
        with pytest.raises(CorruptError) as caught:
            await digest_of(weights)
        assert caught.value.code == "lost_object"

    async def test_a_path_that_starts_at_no_anchor_is_a_mistake(self) -> None:
        trainer = await Trainer.create(memory_store(), tiny_model())
        await trainer.step()
        log = Log(trainer.store)
        path = await find_path(log, await log.manifest(1), at=0)
        table = await read_table(trainer.store, (await log.manifest(0)).table)
        with pytest.raises(ValueError, match="no anchor"):
            await ReplayedWeights.open(trainer.store, path, table)

    async def test_no_such_version(self) -> None:
        trainer = await Trainer.create(memory_store(), tiny_model())
        with pytest.raises(NotFoundError) as caught:
            await replayed(trainer.store, 1)
        assert caught.value.code == "no_version"
        assert isinstance(await Log(trainer.store).manifest(0), AnchorRecord)
