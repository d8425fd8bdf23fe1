"""Publishing over a store that fails: nothing half-visible, nothing lost, and no outcome merely assumed."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from deltastore.errors import ConflictError, StoreError
from deltastore.log import Log
from deltastore.stores.base import Data
from deltastore.validate import validate
from deltastore.writer.publishing import open_writer
from tests.doubles.models import bf16, bits, differing, small_model, tiny_model
from tests.doubles.stores import (
    Call,
    RetryingStore,
    WatchedStore,
    fail_always,
    fail_at,
    fail_once,
    failure,
    memory_store,
)
from tests.doubles.training import Engine, Trainer


async def check(trainer: Trainer, version: int) -> None:
    """A new reader gets the newest version, which is the model as it is, and the stream is sound."""
    engine = await Engine.start(trainer.store, trainer.model)
    assert (await engine.reader.sync()).version == version
    assert differing(engine.tensors, bits(trainer.model)) == []
    assert (await validate(trainer.store)).problems == ()


def sound(store: WatchedStore) -> None:
    store.before = store.after = None


async def prepared() -> tuple[WatchedStore, Trainer]:
    """A trainer with 20 changes to publish, over a store that counts from now on."""
    store = WatchedStore(memory_store())
    trainer = await Trainer.create(store, tiny_model())
    await trainer.step()
    store.forget()
    return store, trainer


@pytest.mark.parametrize("anchor", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.spec("DS005", "DS083", "DS084")
async def test_a_failure_at_any_call_then_a_retry(anchor: bool, when: str) -> None:
    """The same changes are published by the next call, whatever failed and whether it took effect."""
    store, trainer = await prepared()
    await trainer.step(20, anchor=anchor)
    total = len(store.calls)
    assert total >= 5
    for number in range(1, total + 1):
        store, trainer = await prepared()
        setattr(store, when, fail_at(number))
        with contextlib.suppress(StoreError):
            await trainer.step(20, anchor=anchor)
        assert len(store.calls) >= number
        sound(store)
        newest = (await Log(store).newest_manifest()).version
        assert newest in (1, 2)
        published = await trainer.publish()
        assert published.version == newest + 1
        await check(trainer, newest + 1)
        await trainer.step()
        await check(trainer, newest + 2)


@pytest.mark.spec("DS084")
async def test_failed_uploads_leave_the_changes_pending(trainer: Trainer, store: WatchedStore) -> None:
    for _ in range(3):
        trainer.model["norm"][0] += 1
        trainer.model["layers.1.weight"][1, 1] = bf16(0x8000)
        store.before = fail_once("put", "packs/")
        with pytest.raises(StoreError):
            await trainer.publish()
    sound(store)
    published = await trainer.publish()
    assert (published.version, published.changed) == (1, 2)
    await check(trainer, 1)


@pytest.mark.spec("DS084")
async def test_a_change_taken_back_between_failure_and_retry_is_no_change(
    trainer: Trainer, store: WatchedStore
) -> None:
    old = trainer.model["norm"][0]
    trainer.model["norm"][0] = bf16(0x7E57)
    store.before = fail_always("put_if_absent")
    with pytest.raises(StoreError):
        await trainer.publish()
    trainer.model["norm"][0] = old
    sound(store)
    assert (await trainer.publish()).changed == 0
    await check(trainer, 1)


class TestUnknownOutcome:
    """The commit may have happened: it is read back, now or at the next call."""

    @pytest.mark.spec("DS083")
    async def test_a_lost_reply_is_settled_by_reading_back(
        self, trainer: Trainer, store: WatchedStore
    ) -> None:
        store.after = fail_once("put_if_absent")
        assert (await trainer.step()).version == 1
        await trainer.step()
        await check(trainer, 2)

    @pytest.mark.spec("DS083")
    async def test_a_store_that_denies_its_own_success(self) -> None:
        trainer = await Trainer.create(memory_store(), tiny_model())
        trainer.store = RetryingStore(trainer.store)
        trainer.writer = await open_writer(trainer.store, trainer.model)
        for _ in range(3):
            await trainer.step()
        await check(trainer, 3)

    @pytest.mark.spec("DS083", "DS084")
    @pytest.mark.parametrize("anchor", [False, True])
    async def test_a_lost_reply_that_cannot_be_read_back(
        self, trainer: Trainer, store: WatchedStore, anchor: bool
    ) -> None:
        lose = fail_once("put_if_absent")

        def lose_and_go_away(call: Call) -> None:
            try:
                lose(call)
            except StoreError:
                store.before = fail_always("get", "put_if_absent")
                raise

        store.after = lose_and_go_away
        with pytest.raises(StoreError):
            await trainer.step(anchor=anchor)
        sound(store)
        assert (await Log(store).newest_manifest()).version == 1, "it was committed"
        trainer.history[1] = bits(trainer.model)
        published = await trainer.step()
        assert published.version == 2
        await check(trainer, 2)
        await trainer.step()
        assert (await trainer.step()).kind == "delta"
        await check(trainer, 4)
        engine = await Engine.start(store, trainer.model)
        for version in range(5):
            await engine.reader.sync(version)
            assert engine.wrong(trainer.history) == []

    @pytest.mark.spec("DS083")
    @pytest.mark.parametrize("moment", ["at once", "at the next commit"])
    async def test_an_abandoned_request_that_lands_late(self, store: WatchedStore, moment: str) -> None:
        """The server executes the create only after the client gave up and found the slot absent."""
        held: list[tuple[str, bytes]] = []
        armed = [False]

        class Slow(WatchedStore):
            async def put_if_absent(self, key: str, data: Data) -> bool:
                if armed[0] and not held:
                    held.append((key, bytes(data)))
                    raise failure(key)
                if armed[0] and moment == "at the next commit":
                    armed[0] = False
                    await self.inner.put_if_absent(*held[0])
                return await super().put_if_absent(key, data)

        trainer = await Trainer.create(store, tiny_model())
        trainer.writer = await open_writer(Slow(store), trainer.model)
        armed[0] = True
        with pytest.raises(StoreError):
            await trainer.step()
        landed = bits(trainer.model)
        if moment == "at once":
            await store.put_if_absent(*held[0])
            published = await trainer.step()
        else:
            with pytest.raises(ConflictError) as caught:
                await trainer.step()
            assert caught.value.code == "version_taken"
            published = await trainer.step()
        assert published.version == 2
        trainer.history[1] = landed
        await check(trainer, 2)
        await trainer.step()
        await check(trainer, 3)
        engine = await Engine.start(store, trainer.model)
        for version in (0, 1, 2, 3):
            await engine.reader.sync(version)
            assert engine.wrong(trainer.history) == []

    @pytest.mark.spec("DS083")
    async def test_a_publish_cancelled_while_it_commits(self, trainer: Trainer, store: WatchedStore) -> None:
        committing = asyncio.Event()
        armed = [False]

        class Stuck(WatchedStore):
            async def put_if_absent(self, key: str, data: Data) -> bool:
                done = await super().put_if_absent(key, data)
                if armed[0]:
                    committing.set()
                    await asyncio.Event().wait()
                return done

        trainer.writer = await open_writer(Stuck(store), trainer.model)
        armed[0] = True
        task = asyncio.create_task(trainer.step())
        await committing.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        armed[0] = False
        trainer.history[1] = bits(trainer.model)
        assert (await trainer.step()).version == 2
        await check(trainer, 2)
        engine = await Engine.start(store, trainer.model)
        for version in (1, 2):
            await engine.reader.sync(version)
            assert engine.wrong(trainer.history) == []


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
