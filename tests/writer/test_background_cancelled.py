"""Who waits for a version may be cancelled; what is in the background goes on."""

from __future__ import annotations

import asyncio

import pytest

from deltastore.errors import StoreError
from deltastore.log import Log
from tests.doubles.gates import GatedStore
from tests.doubles.models import change
from tests.doubles.stores import fail_once, memory_store
from tests.doubles.training import Trainer

from .background import begin, check, gated, is_waiting, settled


@pytest.fixture
def gate() -> GatedStore:
    """An empty store in memory."""
    return GatedStore(memory_store())


@pytest.fixture
async def trainer(gate: GatedStore) -> Trainer:
    """A trainer whose packs wait."""
    return await gated(gate)


class TestCancelling:
    """Who waits may be cancelled; what is in the background goes on."""

    async def test_a_call_that_still_detects(self, trainer: Trainer, gate: GatedStore) -> None:
        change(trainer.model, trainer.random, 60)
        task = asyncio.create_task(trainer.writer.publish_async())
        await gate.reached(2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert gate.waiting == 0
        await trainer.writer.close()
        assert (await Log(gate).newest_manifest()).version == 0
        await check(trainer)

    async def test_who_awaits_the_result(self, trainer: Trainer, gate: GatedStore) -> None:
        publishing = await begin(trainer, 1)
        task = asyncio.ensure_future(publishing)
        await settled()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open()
        assert (await publishing).version == 1
        await check(trainer)

    async def test_who_awaited_it_does_not_hear_of_its_error(
        self, trainer: Trainer, gate: GatedStore
    ) -> None:
        """So the next call does."""
        publishing = await begin(trainer, 1)
        trainer.history.popitem()
        task = asyncio.ensure_future(publishing)
        await settled()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.before = fail_once("put", prefix="packs/")
        gate.open()
        with pytest.raises(StoreError):
            await trainer.writer.publish()
        await check(trainer)

    @pytest.mark.parametrize("call", ["publish", "publish_async", "close"])
    async def test_a_call_that_waits_for_the_first(
        self, trainer: Trainer, gate: GatedStore, call: str
    ) -> None:
        first = await begin(trainer, 1)
        task = asyncio.create_task(getattr(trainer.writer, call)())
        await settled()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not first.done
        assert await is_waiting(trainer.writer.close())
        gate.open()
        assert (await first).version == 1
        await check(trainer)
