"""The same step asked for again, after a call whose outcome was unknown."""

from __future__ import annotations

import pytest

from deltastore.errors import ConflictError, StoreError
from deltastore.log import Log
from tests.doubles.models import bits
from tests.doubles.stores import Call, WatchedStore, fail_always, fail_once
from tests.doubles.training import Engine, Trainer


async def lose(trainer: Trainer, store: WatchedStore, **options: int) -> None:
    """A version that is committed and not reported."""
    store.after = fail_once("put_if_absent")

    def gone(call: Call) -> None:
        if store.keys("put_if_absent"):
            fail_always("get", "put_if_absent")(call)

    store.forget()
    store.before = gone
    with pytest.raises(StoreError):
        await trainer.step(**options)
    store.before = store.after = None


@pytest.mark.spec("DS083")
async def test_the_version_that_landed_is_what_the_same_step_returns(
    trainer: Trainer, store: WatchedStore
) -> None:
    await lose(trainer, store, step=7)
    trainer.history[1] = bits(trainer.model)
    again = await trainer.writer.publish(step=7)
    assert (again.version, again.kind, again.changed) == (1, "delta", 4)
    assert (await Log(store).newest_manifest()).version == 1
    assert (await trainer.step(step=8)).version == 2


async def test_tensors_that_have_changed_since_are_another_version(
    trainer: Trainer, store: WatchedStore
) -> None:
    await lose(trainer, store, step=7)
    again = await trainer.step(step=7)
    assert again.version == 2
    engine = await Engine.start(store, trainer.model)
    await engine.reader.sync()
    assert engine.wrong(trainer.history) == []


async def test_an_anchor_that_was_asked_for_is_an_anchor(trainer: Trainer, store: WatchedStore) -> None:
    await lose(trainer, store, step=7)
    again = await trainer.writer.publish(step=7, anchor=True)
    assert (again.version, again.kind) == (2, "anchor")


async def test_another_step_is_another_version(trainer: Trainer, store: WatchedStore) -> None:
    await lose(trainer, store, step=7)
    assert (await trainer.step(step=8)).version == 2


async def test_without_a_step_nobody_can_tell(trainer: Trainer, store: WatchedStore) -> None:
    await lose(trainer, store)
    assert (await trainer.writer.publish()).version == 2


async def test_another_version_than_landed_is_not_it(trainer: Trainer, store: WatchedStore) -> None:
    await lose(trainer, store, step=7)
    with pytest.raises(ConflictError, match="version 1"):
        await trainer.writer.publish(step=7, version=0)
    assert (await trainer.writer.publish(step=7, version=5)).version == 5


async def test_a_table_that_is_there_is_not_written_again(trainer: Trainer, store: WatchedStore) -> None:
    store.forget()
    await trainer.step(anchor=True)
    assert [key for key in store.keys("put") if key.startswith("tables/")] == []
