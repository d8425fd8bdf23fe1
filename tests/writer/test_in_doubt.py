"""The commit may have happened, or may happen yet: it is read back, now or at the next call."""

from __future__ import annotations

import asyncio

import pytest

from deltastore.errors import ConflictError, FencedError, StoreError
from deltastore.format.records import record_key
from deltastore.log import Log
from deltastore.stores.base import Data
from deltastore.writer.opening import open_writer
from tests.doubles.forging import append_foreign
from tests.doubles.late import DenyingStore, LateStore
from tests.doubles.models import bf16, bits
from tests.doubles.stores import Call, WatchedStore, fail_always, fail_once
from tests.doubles.training import Trainer

from .following import check, follow


@pytest.mark.spec("DS083")
async def test_a_lost_reply_is_settled_by_reading_back(trainer: Trainer, store: WatchedStore) -> None:
    store.after = fail_once("put_if_absent")
    assert (await trainer.step()).version == 1
    await trainer.step()
    await check(trainer, 2)


@pytest.mark.spec("DS083")
async def test_a_store_that_denies_its_own_success(trainer: Trainer) -> None:
    trainer.writer = await open_writer(DenyingStore(trainer.store), trainer.model)
    for _ in range(3):
        await trainer.step()
    await check(trainer, 3)


@pytest.mark.spec("DS083", "DS084")
async def test_a_change_taken_back_after_an_unknown_outcome_is_a_change(
    trainer: Trainer, store: WatchedStore
) -> None:
    """The version in doubt is committed with the change, and the next one takes it back."""
    old = trainer.model["norm"][0]
    trainer.model["norm"][0] = bf16(0x7E57)
    store.before = fail_always("put_if_absent")
    with pytest.raises(StoreError):
        await trainer.publish()
    trainer.history[1] = bits(trainer.model)
    trainer.model["norm"][0] = old
    store.before = store.after = None
    published = await trainer.publish()
    assert (published.version, published.changed) == (2, 1)
    await check(trainer, 2)
    await follow(trainer)


@pytest.mark.spec("DS083", "DS084")
@pytest.mark.parametrize("anchor", [False, True])
async def test_a_lost_reply_that_cannot_be_read_back(
    trainer: Trainer, store: WatchedStore, anchor: bool
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
    store.before = store.after = None
    assert (await Log(store).newest_manifest()).version == 1, "it was committed"
    trainer.history[1] = bits(trainer.model)
    published = await trainer.step()
    assert published.version == 2
    await check(trainer, 2)
    await trainer.step()
    assert (await trainer.step()).kind == "delta"
    await check(trainer, 4)
    await follow(trainer)


@pytest.mark.spec("DS083", "DS084")
@pytest.mark.parametrize("anchor", [False, True])
@pytest.mark.parametrize("moment", ["before the next call", "while it settles", "much later", "never"])
async def test_an_abandoned_request_that_lands_late(
    trainer: Trainer, store: WatchedStore, moment: str, anchor: bool
) -> None:
    """The server executes a create only after the client gave up and found the slot absent."""
    late = LateStore(store)
    trainer.writer = await open_writer(late, trainer.model)
    late.slow = True
    with pytest.raises(StoreError):
        await trainer.step(anchor=anchor)
    trainer.history[1] = bits(trainer.model)
    assert (await Log(store).newest_manifest()).version == 0
    late.slow = False
    if moment == "before the next call":
        await late.arrive()
    late.arriving = moment == "while it settles"
    assert (await trainer.step()).version == 2
    await check(trainer, 2)
    if moment == "much later":
        await late.arrive()
    await trainer.step()
    await check(trainer, 3)
    await follow(trainer)


@pytest.mark.spec("DS080", "DS083")
@pytest.mark.parametrize("arrives", [False, True])
async def test_a_version_in_doubt_whose_slot_goes_to_a_newer_epoch(
    trainer: Trainer, store: WatchedStore, arrives: bool
) -> None:
    late = LateStore(store)
    trainer.writer = await open_writer(late, trainer.model)
    late.slow = True
    with pytest.raises(StoreError):
        await trainer.step()
    late.slow = False
    trainer.load(0)
    newer = await open_writer(store, trainer.model, label="the newer")
    if arrives:
        await late.arrive()
    for _ in range(2):
        with pytest.raises(FencedError, match="the newer"):
            await trainer.step()
    trainer.load(0)
    trainer.writer = newer
    assert (await trainer.step()).version == 1
    await check(trainer, 1)


@pytest.mark.spec("DS083")
async def test_a_version_in_doubt_whose_slot_goes_to_another_record(
    trainer: Trainer, store: WatchedStore
) -> None:
    """It will never be, so its number is free, and what was found for it is found again."""
    store.before = fail_always("put_if_absent")
    with pytest.raises(StoreError):
        await trainer.step()
    store.before = store.after = None
    await append_foreign(store)
    published = await trainer.publish()
    assert published.version == 1
    assert published.changed > 0
    await check(trainer, 1)


@pytest.mark.spec("DS083")
async def test_the_number_of_a_version_in_doubt_may_be_taken(trainer: Trainer, store: WatchedStore) -> None:
    store.before = fail_always("put_if_absent")
    with pytest.raises(StoreError):
        await trainer.step(version=5)
    trainer.history[5] = bits(trainer.model)
    store.before = store.after = None
    with pytest.raises(ConflictError, match="not above the tip, version 5") as caught:
        await trainer.step(version=5)
    assert caught.value.code == "version_taken"
    assert trainer.writer.version == 5
    assert (await trainer.publish(version=6)).changed > 0
    await check(trainer, 6)
    await follow(trainer)


@pytest.mark.spec("DS083")
async def test_a_store_that_stays_away_is_asked_again_by_every_call(
    trainer: Trainer, store: WatchedStore
) -> None:
    store.before = fail_always("put_if_absent")
    for _ in range(3):
        with pytest.raises(StoreError):
            await trainer.step()
        trainer.history.setdefault(1, bits(trainer.model))
        assert set(store.keys("put_if_absent")[-3:]) == {record_key(4)}
    store.before = store.after = None
    assert (await trainer.publish()).version == 2
    await check(trainer, 2)
    await follow(trainer)


@pytest.mark.spec("DS083")
async def test_a_publish_cancelled_while_it_commits(trainer: Trainer, store: WatchedStore) -> None:
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
    await follow(trainer)


@pytest.mark.spec("DS083", "DS084")
async def test_what_was_found_for_a_large_version_in_doubt_waits_in_a_file(
    trainer: Trainer, store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltastore.detect.pending.IN_MEMORY_BYTES", 0)
    store.before = fail_always("put_if_absent")
    with pytest.raises(StoreError):
        await trainer.step(60)
    trainer.history[1] = bits(trainer.model)
    store.before = None
    assert (await trainer.step(2)).version == 2
    await check(trainer, 2)
    await follow(trainer)


async def test_a_copy_that_cannot_be_brought_up_to_its_version_is_made_anew(
    trainer: Trainer, store: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version is committed; what the copy holds then is no version, so nothing is based on it."""
    with monkeypatch.context() as patch:
        patch.setattr("deltastore.detect.pending.PendingPatches.__iter__", _unreadable)
        with pytest.raises(OSError, match="input/output error"):
            await trainer.step()
    trainer.history[1] = bits(trainer.model)
    assert (await Log(store).newest_manifest()).version == 1
    assert trainer.writer.version is None
    published = await trainer.step()
    assert (published.version, published.kind) == (2, "anchor")
    assert (await trainer.step()).kind == "delta"
    await check(trainer, 3)
    await follow(trainer)


def _unreadable(*_: object) -> None:
    raise OSError(5, "input/output error")


async def test_a_round_whose_giving_up_was_cut_short_is_forgotten(
    trainer: Trainer, store: WatchedStore
) -> None:
    """Else the anchor after it would be taken for the base of what was found before it."""

    async def interrupted(*_: object) -> None:
        raise asyncio.CancelledError

    store.before = fail_always("put")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer.writer._committing, "give_up", interrupted)
        with pytest.raises(asyncio.CancelledError):
            await trainer.step()
    store.before = None
    trainer.load(0)
    await trainer.publish(anchor=True)
    await trainer.step()
    await check(trainer, 2)
    await follow(trainer)
