"""Following a stream: every version reached by any way is that version to the bit."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from deltastore.errors import CorruptError, NotFoundError, UnsupportedError
from deltastore.format.records import record_key
from deltastore.reader.opening import open_reader
from deltastore.stores.local import LocalStore
from deltastore.validate import validate
from tests.doubles.forging import append_foreign, change_record
from tests.doubles.models import bf16, bits, blank, cut_table, differing, small_model, tiny_model
from tests.doubles.stores import WatchedStore, memory_store
from tests.doubles.training import Engine, Trainer


class TestFollowing:
    """One reader, one writer."""

    @pytest.mark.spec("DS092")
    async def test_step_by_step(self, trainer: Trainer) -> None:
        engine = await Engine.start(trainer.store, trainer.model)
        assert (engine.reader.version, engine.reader.newest, engine.reader.torn) == (None, 1, False)
        for _ in range(12):
            synced = await engine.reader.sync()
            assert engine.wrong(trainer.history) == []
            assert synced.version == engine.reader.version == engine.reader.newest
            await trainer.step(7)

    async def test_fifty_versions_behind(self) -> None:
        trainer = await Trainer.create(memory_store(), tiny_model())
        engine = await Engine.start(trainer.store, trainer.model)
        await engine.reader.sync()
        await trainer.steps(50, 3)
        synced = await engine.reader.sync()
        assert (synced.previous, synced.version) == (0, 50)
        assert engine.wrong(trainer.history) == []

    async def test_any_version_from_any_other(self, trainer: Trainer) -> None:
        await trainer.step(3)
        await trainer.step(3, anchor=True)
        await trainer.steps(2)
        engine = await Engine.start(trainer.store, trainer.model)
        for target in (0, 5, 1, 4, 2, 3, 3, 5, 0, 2):
            assert (await engine.reader.sync(target)).version == target
            assert engine.wrong(trainer.history) == []

    async def test_a_forward_step_fetches_no_anchor(self, trainer: Trainer, store: WatchedStore) -> None:
        engine = await Engine.start(store, trainer.model)
        await engine.reader.sync()
        await trainer.step()
        await trainer.step(anchor=True)
        store.forget()
        await engine.reader.sync(2)
        assert [key for key in store.keys("get", "get_range") if key.startswith("anchors/")] == []

    async def test_what_sync_returns(self, trainer: Trainer) -> None:
        engine = await Engine.start(trainer.store, trainer.model)
        first = await engine.reader.sync(0)
        assert (first.version, first.previous, first.changed) == (0, None, first.changed)
        assert first.nbytes > 0
        published = await trainer.step(9)
        await engine.reader.sync(1)
        second = await engine.reader.sync()
        assert (second.version, second.previous) == (2, 1)
        assert (second.nbytes, second.changed) == (published.nbytes, published.changed)
        third = await engine.reader.sync()
        assert (third.version, third.previous, third.nbytes, third.changed) == (2, 2, 0, 0)
        assert third.pause_seconds == 0

    async def test_no_such_version(self, trainer: Trainer) -> None:
        await trainer.step(version=9)
        engine = await Engine.start(trainer.store, trainer.model)
        await engine.reader.sync()
        before = bits(engine.tensors)
        for version in (2, 10, -1):
            with pytest.raises(NotFoundError) as caught:
                await engine.reader.sync(version)
            assert caught.value.code == "no_version"
        assert engine.reader.version == 9
        assert differing(engine.tensors, before) == []

    async def test_a_reader_before_the_first_version(self, store: WatchedStore) -> None:
        with pytest.raises(NotFoundError) as none:
            await open_reader(store, small_model())
        assert none.value.code == "no_stream"

    async def test_many_readers_at_once(self, trainer: Trainer) -> None:
        engines = [await Engine.start(trainer.store, trainer.model) for _ in range(6)]
        for _ in range(3):
            await asyncio.gather(*(engine.reader.sync() for engine in engines), trainer.step(5))
        await asyncio.gather(*(engine.reader.sync() for engine in engines))
        for engine in engines:
            assert engine.reader.version == 4
            assert engine.wrong(trainer.history) == []

    @pytest.mark.parametrize("limit", [3, 10, 64])
    async def test_small_chunks_and_slabs(self, limit: int) -> None:
        model = small_model()
        trainer = await Trainer.create(
            memory_store(), model, table=cut_table(model, limit, 2), pack_bytes=400
        )
        engine = await Engine.start(trainer.store, model)
        for _ in range(4):
            await trainer.step(30)
            await engine.reader.sync()
            assert engine.wrong(trainer.history) == []
        assert (await validate(trainer.store)).ok

    async def test_over_a_folder(self, tmp_path: object) -> None:
        store = LocalStore(tmp_path)  # type: ignore[arg-type]
        trainer = await Trainer.create(store, small_model())
        engine = await Engine.start(store, trainer.model)
        await asyncio.gather(engine.reader.sync(), trainer.step())
        await engine.reader.sync()
        assert engine.wrong(trainer.history) == []


class TestOneReaderAtOnce:
    """Calls of one reader take turns."""

    @pytest.mark.spec("DS091", "DS092")
    async def test_syncs_to_different_versions(self, trainer: Trainer) -> None:
        for _ in range(5):
            await trainer.step(20)
        engine = await Engine.start(trainer.store, trainer.model)
        await engine.reader.sync(4)
        targets = (6, 2, 5, 0, 6, 3)
        results = await asyncio.gather(*(engine.reader.sync(target) for target in targets))
        assert [one.version for one in results] == list(targets)
        assert engine.wrong(trainer.history) == []

    async def test_polls_among_syncs(self, trainer: Trainer) -> None:
        engine = await Engine.start(trainer.store, trainer.model)
        for _ in range(3):
            await trainer.step()
            await asyncio.gather(engine.reader.poll(), engine.reader.sync(), engine.reader.poll())
            assert engine.reader.newest == max(trainer.history)
            assert engine.wrong(trainer.history) == []


class TestPolling:
    """Learning of new versions."""

    async def test_poll_says_whether_there_is_something_to_do(
        self, trainer: Trainer, store: WatchedStore
    ) -> None:
        engine = await Engine.start(store, trainer.model)
        assert await engine.reader.poll()
        await engine.reader.sync()
        store.forget()
        assert not await engine.reader.poll()
        assert len(store.calls) == 1
        await trainer.step()
        assert await engine.reader.poll()
        assert (engine.reader.newest, engine.reader.version) == (2, 1)
        await trainer.reopen()
        await engine.reader.sync()
        assert not await engine.reader.poll()

    @pytest.mark.parametrize("interval", [0.001, 0.0])
    async def test_wait_returns_when_a_version_appears(self, trainer: Trainer, interval: float) -> None:
        engine = await Engine.start(trainer.store, trainer.model)
        await engine.reader.sync()
        waiting = asyncio.create_task(engine.reader.wait(interval=interval))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await trainer.step()
        assert await waiting
        assert engine.reader.newest == 2

    @pytest.mark.parametrize("limit", [0.0, -1.0, 0.02])
    async def test_wait_gives_up(self, trainer: Trainer, limit: float) -> None:
        engine = await Engine.start(trainer.store, trainer.model)
        assert await engine.reader.wait(timeout=limit), "there is a version to sync"
        await engine.reader.sync()
        assert not await engine.reader.wait(timeout=limit, interval=0.005)

    async def test_wait_can_be_cancelled(self, trainer: Trainer) -> None:
        engine = await Engine.start(trainer.store, trainer.model)
        await engine.reader.sync()
        task = asyncio.create_task(engine.reader.wait(interval=0.001))
        await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await trainer.step()
        await engine.reader.sync()
        assert engine.wrong(trainer.history) == []

    @pytest.mark.spec("DS051")
    async def test_a_fork_stops_the_reader_and_leaves_its_weights(self, trainer: Trainer) -> None:
        engine = await Engine.start(trainer.store, trainer.model)
        await engine.reader.sync()
        published = await trainer.step()
        await change_record(trainer.store, published.slot, parent="0" * 64)
        with pytest.raises(CorruptError) as caught:
            await engine.reader.sync()
        assert (caught.value.code, caught.value.where) == ("bad_chain", record_key(published.slot))
        assert engine.reader.version == 1
        assert engine.wrong(trainer.history) == []

    @pytest.mark.spec("DS052")
    async def test_foreign_records(self, trainer: Trainer) -> None:
        engine = await Engine.start(trainer.store, trainer.model)
        await engine.reader.sync()
        await append_foreign(trainer.store)
        await trainer.step()
        await engine.reader.sync()
        assert engine.reader.version == 2
        slot = await append_foreign(trainer.store, ignorable=False)
        with pytest.raises(UnsupportedError) as caught:
            await engine.reader.sync()
        assert (caught.value.code, caught.value.where) == ("unknown_kind", record_key(slot))
        assert engine.wrong(trainer.history) == []
        with pytest.raises(UnsupportedError):
            await open_reader(trainer.store, blank(trainer.model))


async def test_zero_changes_are_a_version_too(trainer: Trainer) -> None:
    engine = await Engine.start(trainer.store, trainer.model)
    await engine.reader.sync()
    before = bits(engine.tensors)
    await trainer.publish()
    synced = await engine.reader.sync()
    assert (synced.version, synced.nbytes, synced.changed) == (2, 0, 0)
    assert differing(engine.tensors, before) == []


async def test_hostile_values_one_after_another() -> None:
    """Every element takes every hostile value in turn, so every width and both zeros are crossed."""
    values = [0x0000, 0x8000, 0x0001, 0x8001, 0x7F80, 0xFF80, 0x7FC1, 0xFFA5, 0x7F81, 0x3F80, 0xBF80, 0xFFFF]
    model = {"w": bf16([0x3F80] * 300)}
    trainer = await Trainer.create(memory_store(), model)
    engine = await Engine.start(trainer.store, model)
    for shift in range(len(values)):
        raw = model["w"].view(np.uint16)
        raw[::7] = [values[(index + shift) % len(values)] for index in range(len(raw[::7]))]
        await trainer.publish()
        await engine.reader.sync()
        assert engine.wrong(trainer.history) == []
