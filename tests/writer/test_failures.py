"""Publishing over a store that fails: nothing half-visible, nothing lost, and no outcome merely assumed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TypeVar

import pytest

from deltastore.errors import StoreError
from deltastore.log import Log
from deltastore.stores.base import Data
from deltastore.writer.opening import open_writer
from tests.doubles.late import StuckStore
from tests.doubles.models import bf16, bits, small_model, tiny_model
from tests.doubles.stores import (
    WatchedStore,
    fail_always,
    fail_at,
    fail_from,
    fail_once,
    memory_store,
)
from tests.doubles.training import Trainer

from .following import check, follow

Answer = TypeVar("Answer")


async def prepared() -> tuple[WatchedStore, Trainer]:
    """A trainer with 20 changes to publish, over a store that counts from now on."""
    store = WatchedStore(memory_store())
    trainer = await Trainer.create(store, tiny_model())
    await trainer.step()
    store.forget()
    return store, trainer


@pytest.mark.parametrize("anchor", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.spec("DS005", "DS083", "DS084")
async def test_a_failure_at_any_call_then_a_retry(anchor: bool, when: str, lasting: bool) -> None:
    """The same changes are published by the next call, whatever failed and whether it took effect.

    ``lasting``: every call from that one on fails until the next publish.
    """
    store, trainer = await prepared()
    await trainer.step(20, anchor=anchor)
    total = len(store.calls)
    assert total >= 3
    outcomes = set()
    for number in range(1, total + 1):
        store, trainer = await prepared()
        setattr(store, when, fail_from(number) if lasting else fail_at(number))
        with contextlib.suppress(StoreError):
            await trainer.step(20, anchor=anchor)
        assert len(store.calls) >= number
        store.before = store.after = None
        trainer.history[2] = bits(trainer.model)
        newest = (await Log(store).newest_manifest()).version
        assert newest in (1, 2)
        in_doubt = trainer.writer._committing.in_doubt
        outcomes.add((newest, in_doubt))
        published = await trainer.step(3)
        # What is in doubt is committed first, unless it was committed all along.
        assert published.version == (3 if in_doubt else newest + 1)
        await check(trainer, published.version)
        await trainer.step()
        await check(trainer, published.version + 1)
        await follow(trainer)
    if lasting:
        assert outcomes == {(1, False), (2 if when == "after" else 1, True)}
    else:
        assert {doubt for _, doubt in outcomes} == {False}


@pytest.mark.spec("DS084")
async def test_failed_uploads_leave_the_changes_pending(trainer: Trainer, store: WatchedStore) -> None:
    for _ in range(3):
        trainer.model["norm"][0] += 1
        trainer.model["layers.1.weight"][1, 1] = bf16(0x8000)
        store.before = fail_once("put", "packs/")
        with pytest.raises(StoreError):
            await trainer.publish()
    store.before = store.after = None
    published = await trainer.publish()
    assert (published.version, published.changed) == (1, 2)
    await check(trainer, 1)


@pytest.mark.spec("DS084")
async def test_a_change_taken_back_between_failure_and_retry_is_no_change(
    trainer: Trainer, store: WatchedStore
) -> None:
    old = trainer.model["norm"][0]
    trainer.model["norm"][0] = bf16(0x7E57)
    store.before = fail_always("put")
    with pytest.raises(StoreError):
        await trainer.publish()
    trainer.model["norm"][0] = old
    store.before = store.after = None
    published = await trainer.publish()
    assert (published.version, published.changed) == (1, 0)
    await check(trainer, 1)


async def stuck_at(number: int, takes_effect: bool) -> tuple[WatchedStore, Trainer, StuckStore]:
    """A trainer with changes to publish whose ``number``-th call never returns."""
    store, trainer = await prepared()
    stuck = StuckStore(store, takes_effect)
    trainer.writer = await open_writer(stuck, trainer.model, pack_bytes=1)
    stuck.left = number
    return store, trainer, stuck


@pytest.mark.parametrize("anchor", [False, True])
@pytest.mark.parametrize("takes_effect", [False, True])
@pytest.mark.spec("DS083", "DS084")
async def test_a_publish_cancelled_at_any_call(anchor: bool, takes_effect: bool) -> None:
    """Cancelled at an await that never comes back, before or after the call took effect."""
    _, trainer, stuck = await stuck_at(0, takes_effect)
    stuck.forget()
    await trainer.step(20, anchor=anchor)
    total = len(stuck.calls)
    for number in range(1, total + 1):
        _, trainer, stuck = await stuck_at(number, takes_effect)
        task = asyncio.create_task(trainer.step(20, anchor=anchor))
        await stuck.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        trainer.history[2] = bits(trainer.model)
        in_doubt = trainer.writer._committing.in_doubt
        assert in_doubt == (number == total)
        published = await trainer.step(3)
        assert published.version == (3 if in_doubt else 2)
        await trainer.step()
        await check(trainer, published.version + 1)
        await follow(trainer)


async def test_a_publish_cancelled_while_it_uploads() -> None:
    store = WatchedStore(memory_store())
    trainer = await Trainer.create(store, small_model())
    uploading = asyncio.Event()

    class Stuck(WatchedStore):
        async def put(self, key: str, data: Data) -> None:
            uploading.set()
            await asyncio.Event().wait()

    trainer.writer = await open_writer(Stuck(store), trainer.model, pack_bytes=1)
    task = asyncio.create_task(trainer.step(30))
    await uploading.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    trainer.writer._store = store
    published = await trainer.publish()
    assert published.version == 1
    await check(trainer, 1)


@pytest.mark.spec("DS054", "DS055")
async def test_two_publishes_at_once_are_two_versions(trainer: Trainer, store: WatchedStore) -> None:
    trainer.model["norm"][0] = bf16(0x0F0F)
    trainer.model["layers.0.weight"][0, 0] = bf16(0x0F0F)
    published = await asyncio.gather(*(trainer.publish(anchor=number == 1) for number in range(4)))
    assert sorted(one.version for one in published) == [1, 2, 3, 4]
    await check(trainer, 4)
    await trainer.step()
    await check(trainer, 5)
