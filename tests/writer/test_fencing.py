"""Epochs: who may commit, and who is fenced."""

from __future__ import annotations

import asyncio

import pytest

from deltastore.errors import ConflictError, FencedError
from deltastore.format.records import EpochRecord
from deltastore.log import Log
from deltastore.stores.base import Store
from deltastore.validate import validate
from deltastore.writer.alone import Alone
from deltastore.writer.epoch import Epoch
from deltastore.writer.opening import open_writer
from deltastore.writer.publishing import AsyncWriter
from tests.doubles.forging import append_foreign
from tests.doubles.models import bf16, bits, copy_of, differing, tiny_model
from tests.doubles.stores import WatchedStore, contents, memory_store
from tests.doubles.training import Engine, Trainer


async def epochs(store: Store) -> list[EpochRecord]:
    return [record async for record in Log(store).forwards() if isinstance(record, EpochRecord)]


class TestFencing:
    """A newer epoch owns the stream."""

    @pytest.mark.spec("DS053", "DS080")
    async def test_an_older_writer_is_told_who_fenced_it(self, trainer: Trainer) -> None:
        await trainer.step()
        other = copy_of(trainer.model)
        newer = await open_writer(trainer.store, other, label="the new trainer")
        before = await contents(trainer.store)
        for anchor in (False, True, False):
            with pytest.raises(FencedError, match="the new trainer") as caught:
                await trainer.step(anchor=anchor)
            assert (caught.value.code, caught.value.exit_status) == ("fenced", 11)
            assert f"epoch {newer.epoch}" in str(caught.value)
        assert await contents(trainer.store) == before
        assert (await newer.publish()).version == 2

    @pytest.mark.spec("DS080", "DS082")
    async def test_a_writer_that_has_uploaded_everything_is_fenced_before_its_commit(self) -> None:
        store = WatchedStore(memory_store())
        trainer = await Trainer.create(store, tiny_model())
        fresh: list[AsyncWriter] = []

        class Overtaken(WatchedStore):
            async def put_if_absent(self, key: str, data: object) -> bool:
                if not fresh:
                    fresh.append(await open_writer(store, copy_of(trainer.model), label="overtaker"))
                return await super().put_if_absent(key, data)  # type: ignore[arg-type]

        zombie = trainer.model
        writer = await open_writer(Overtaken(store), zombie)
        # The overtaker came while this one appended its epoch, so that one took the next slot: now again.
        fresh.clear()
        zombie["norm"][0] = bf16(9)
        with pytest.raises(FencedError, match="overtaker"):
            await writer.publish()
        assert [key for key in await contents(store) if key.startswith("packs/")] != []
        assert (await Log(store).newest_manifest()).version == 0
        assert (await fresh[0].publish()).version == 1
        assert (await validate(store)).ok

    @pytest.mark.spec("DS080")
    async def test_a_zombie_never_overwrites_what_the_new_writer_published(self, trainer: Trainer) -> None:
        await trainer.step()
        model = copy_of(trainer.model)
        newer = await open_writer(trainer.store, model)
        model["norm"][1] = bf16(0x4242)
        await newer.publish()
        expected = bits(model)
        with pytest.raises(FencedError):
            await trainer.step(30)
        engine = await Engine.start(trainer.store, model)
        await engine.reader.sync()
        assert differing(engine.tensors, expected) == []
        assert (await validate(trainer.store)).ok

    @pytest.mark.spec("DS080")
    async def test_many_writers_opening_at_once_each_get_an_epoch_and_one_survives(self) -> None:
        store = memory_store()
        trainer = await Trainer.create(store, tiny_model())
        models = [copy_of(trainer.model) for _ in range(8)]
        writers = await asyncio.gather(*(open_writer(store, model) for model in models))
        assert sorted(writer.epoch for writer in writers) == list(range(3, 11))

        async def publish(number: int) -> int:
            models[number]["norm"][0] = bf16(number + 1)
            try:
                return (await writers[number].publish()).version
            except FencedError:
                return -1

        versions = await asyncio.gather(*(publish(number) for number in range(8)))
        last = max(range(8), key=lambda number: writers[number].epoch)
        assert versions == [1 if number == last else -1 for number in range(8)]
        assert (await validate(store)).ok

    @pytest.mark.spec("DS082")
    async def test_only_an_epoch_record_fences(self, trainer: Trainer) -> None:
        for _ in range(3):
            await append_foreign(trainer.store)
            await trainer.step()
        engine = await Engine.start(trainer.store, trainer.model)
        await engine.reader.sync()
        assert engine.reader.version == 3
        assert engine.wrong(trainer.history) == []
        assert (await validate(trainer.store)).ok

    @pytest.mark.spec("DS082")
    async def test_a_slot_lost_to_another_record_is_tried_again_with_the_same_packs(self) -> None:
        store = WatchedStore(memory_store())
        trainer = await Trainer.create(store, tiny_model())
        lost: list[int] = []

        class Crowded(WatchedStore):
            async def put_if_absent(self, key: str, data: object) -> bool:
                if len(lost) < 3:
                    lost.append(await append_foreign(store))
                return await super().put_if_absent(key, data)  # type: ignore[arg-type]

        crowded = Crowded(store)
        trainer.writer = await open_writer(crowded, trainer.model)
        assert len(lost) == 3
        lost.clear()
        crowded.forget()
        published = await trainer.step()
        assert published.slot == lost[-1] + 1
        packs = crowded.keys("put")
        assert len(packs) == len(set(packs)) == 1
        assert (await validate(store)).ok

    async def test_a_fenced_writer_uploads_nothing_more(self, trainer: Trainer) -> None:
        assert isinstance(trainer.store, WatchedStore)
        await open_writer(trainer.store, copy_of(trainer.model))
        with pytest.raises(FencedError):
            await trainer.step()
        trainer.store.forget()
        with pytest.raises(FencedError):
            await trainer.step()
        assert trainer.store.keys("put", "put_if_absent") == []


class TestEpoch:
    """The record itself."""

    @pytest.mark.spec("DS053")
    async def test_epochs_count_up_from_one(self, trainer: Trainer) -> None:
        await trainer.reopen()
        await trainer.reopen()
        assert [record.epoch for record in await epochs(trainer.store)] == [1, 2, 3, 4]

    async def test_it_appends_behind_records_it_did_not_know(self, trainer: Trainer) -> None:
        await append_foreign(trainer.store)
        epoch = await Epoch.begin(Log(trainer.store), resumes=None, label="")
        assert epoch.number == 3
        assert (epoch.last.slot, epoch.newest_version) == (5, 0)

    async def test_a_version_of_ones_own_epoch_that_one_did_not_commit_is_a_conflict(
        self, trainer: Trainer
    ) -> None:
        own = trainer.writer
        epoch = Epoch(Log(trainer.store), (await epochs(trainer.store))[-1], 0)
        alone = Alone(trainer.store, own._live.table, epoch)
        twin = AsyncWriter(trainer.store, alone, own._live, own._detector, own._base, own._packing)
        await trainer.step()
        with pytest.raises(ConflictError) as caught:
            await twin.publish()
        assert caught.value.code == "version_taken"
        assert not isinstance(caught.value, FencedError)
        assert (await validate(trainer.store)).ok
