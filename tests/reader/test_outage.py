"""An engine that waits outlives a store that is gone for a while."""

from __future__ import annotations

import pytest

from deltastore.errors import StoreError
from tests.doubles.models import tiny_model
from tests.doubles.stores import Call, WatchedStore, fail_always, failure, memory_store
from tests.doubles.training import Engine, Trainer


async def following() -> tuple[Trainer, Engine, WatchedStore]:
    trainer = await Trainer.create(memory_store(), tiny_model())
    store = WatchedStore(trainer.store)
    engine = await Engine.start(store, trainer.model)
    await engine.reader.sync()
    store.forget()
    return trainer, engine, store


async def test_a_store_that_comes_back_is_polled_again() -> None:
    trainer, engine, store = await following()
    await trainer.step()

    def gone_at_first(call: Call) -> None:
        if call.number <= 5:
            raise failure(call.key)

    store.before = gone_at_first
    assert await engine.reader.wait(timeout=30, interval=0.001)
    assert (await engine.reader.sync()).version == 1


async def test_a_store_that_stays_away_is_an_error_in_the_end() -> None:
    _, engine, store = await following()
    store.before = fail_always("get")
    with pytest.raises(StoreError, match="server is gone"):
        await engine.reader.wait(timeout=0.05, interval=0.01)
    assert len(store.calls) > 1
    store.before = None
    assert not await engine.reader.wait(timeout=0.0)
