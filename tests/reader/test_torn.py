"""Writes that fail half way: said aloud, and repaired."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deltastore.errors import DeltastoreError, StoreError, TornError
from deltastore.layout.memory import bits_of
from deltastore.reader.host import HostTargets
from tests.doubles.stores import WatchedStore, fail_always, fail_once
from tests.doubles.training import Engine, Trainer

from .tearing import failing_scatter, ready


@pytest.mark.spec("DS092")
@pytest.mark.parametrize("after", [1, 2, 4])
class TestHalfWritten:
    """HostTargets fail in the middle of an apply."""

    async def test_the_reader_says_that_it_is_torn(
        self, trainer: Trainer, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        engine = await ready(trainer)
        with (
            failing_scatter(monkeypatch, after, RuntimeError("no memory")),
            pytest.raises(TornError) as caught,
        ):
            await engine.reader.sync()
        assert (caught.value.code, caught.value.exit_status) == ("torn", 1)
        assert "no memory" in str(caught.value)
        assert engine.state() == (None, True)
        assert await engine.reader.poll(), "there is something to sync"

    async def test_the_same_delta_repairs_without_an_anchor(
        self, trainer: Trainer, store: WatchedStore, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        engine = await ready(trainer)
        with failing_scatter(monkeypatch, after, RuntimeError("no memory")), pytest.raises(TornError):
            await engine.reader.sync()
        store.forget()
        synced = await engine.reader.sync()
        assert (synced.previous, synced.version) == (None, 2)
        assert not engine.reader.torn
        assert engine.wrong(trainer.history) == []
        assert [key for key in store.keys("get", "get_range") if key.startswith("anchors/")] == []

    async def test_repair_goes_on_to_the_newest_version(
        self, trainer: Trainer, store: WatchedStore, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        engine = await ready(trainer)
        with failing_scatter(monkeypatch, after, RuntimeError("no memory")), pytest.raises(TornError):
            await engine.reader.sync()
        await trainer.steps(3)
        store.forget()
        await engine.reader.sync()
        assert engine.state() == (5, False)
        assert engine.wrong(trainer.history) == []
        assert [key for key in store.keys("get", "get_range") if key.startswith("anchors/")] == []

    async def test_the_anchor_repairs_where_the_delta_is_gone(
        self, trainer: Trainer, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        engine = await ready(trainer)
        with failing_scatter(monkeypatch, after, RuntimeError("no memory")), pytest.raises(TornError):
            await engine.reader.sync()
        await trainer.step(anchor=True)
        for key in [info.key async for info in trainer.store.list("packs/00000000000000000002/")]:
            await trainer.store.delete(key)
        await engine.reader.sync()
        assert engine.state() == (3, False)
        assert engine.wrong(trainer.history) == []

    async def test_a_repair_needs_no_store_and_may_fail_too(
        self, trainer: Trainer, store: WatchedStore, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        engine = await ready(trainer)
        for _ in range(2):
            with failing_scatter(monkeypatch, after, RuntimeError("no memory")), pytest.raises(TornError):
                await engine.reader.sync()
            assert engine.state() == (None, True)
        store.before = fail_always("get", prefix="packs/")
        await engine.reader.sync()
        assert engine.state() == (2, False)
        assert engine.wrong(trainer.history) == []

    async def test_torn_and_changed_by_something_else(
        self, trainer: Trainer, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        """The repair cannot trust what stands there: it ends with the right bits all the same."""
        engine = await ready(trainer)
        with failing_scatter(monkeypatch, after, RuntimeError("no memory")), pytest.raises(TornError):
            await engine.reader.sync()
        for name, tensor in engine.tensors.items():
            view = bits_of(name, tensor)
            view[...] = view ^ view.dtype.type(1)
        await engine.reader.sync()
        assert engine.state() == (2, False)
        assert engine.wrong(trainer.history) == []

    async def test_an_old_version_is_reached_from_torn_weights(
        self, trainer: Trainer, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        engine = await ready(trainer)
        with failing_scatter(monkeypatch, after, RuntimeError("no memory")), pytest.raises(TornError):
            await engine.reader.sync()
        await engine.reader.sync(0)
        assert engine.wrong(trainer.history) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), MemoryError()])
async def test_torn_by_anything_that_can_be_raised(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    engine = await ready(trainer)
    caught: list[BaseException] = []
    with failing_scatter(monkeypatch, 2, error):
        # Not pytest.raises: the event loop treats the first two of these in its own way.
        try:
            await engine.reader.sync()
        except BaseException as raised:  # noqa: BLE001
            caught.append(raised)
    assert len(caught) == 1
    assert engine.state() == (None, True)
    await engine.reader.sync()
    assert engine.wrong(trainer.history) == []


async def test_memory_that_does_not_hold_what_was_written(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await ready(trainer)
    with monkeypatch.context() as patch:
        patch.setattr(HostTargets, "scatter", lambda *_: None)
        with pytest.raises(DeltastoreError) as caught:
            await engine.reader.sync()
    assert caught.value.code == "bad_digest"
    assert engine.state() == (None, True)
    await engine.reader.sync()
    assert engine.wrong(trainer.history) == []


@pytest.mark.spec("DS092")
@pytest.mark.parametrize("prefix", ["packs/", "anchors/"])
async def test_a_sync_that_is_cancelled(trainer: Trainer, store: WatchedStore, prefix: str) -> None:
    waiting, stuck = asyncio.Event(), [0]

    class Stuck(WatchedStore):
        async def get(self, key: str, *, limit: int) -> bytes:
            if key.startswith(prefix) and not key.endswith(".json"):
                stuck[0] += 1
                if stuck[0] == 3:
                    waiting.set()
                    await asyncio.Event().wait()
            return await super().get(key, limit=limit)

    engine = await Engine.start(Stuck(store), trainer.model)
    if prefix == "packs/":
        await engine.reader.sync(0)
    task = asyncio.create_task(engine.reader.sync())
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.state() == ((0, False) if prefix == "packs/" else (None, True))
    if prefix == "packs/":
        assert engine.wrong(trainer.history) == []
    await engine.reader.sync()
    assert engine.state() == (1, False)
    assert engine.wrong(trainer.history) == []


@pytest.mark.spec("DS092", "DS093")
async def test_an_anchor_that_stops_arriving_leaves_the_reader_torn(
    trainer: Trainer, store: WatchedStore
) -> None:
    engine = await Engine.start(store, trainer.model)
    await engine.reader.sync()
    store.before = fail_once("get", "anchors/00000000000000000000/")
    with pytest.raises(StoreError):
        await engine.reader.sync(0)
    assert engine.reader.version == 1, "nothing was written yet"
    assert engine.wrong(trainer.history) == []
    shards = [0]

    def third_shard(call: Any) -> None:
        shards[0] += "/c/" in call.key
        if shards[0] == 3:
            fail_always("get")(call)

    store.before = third_shard
    with pytest.raises(StoreError):
        await engine.reader.sync(0)
    assert engine.state() == (None, True)
    store.before = None
    await engine.reader.sync()
    assert engine.state() == (1, False)
    assert engine.wrong(trainer.history) == []
