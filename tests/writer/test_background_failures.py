"""What fails in the background is told once: to who awaits it, else to the next call, else by close."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

from deltastore.errors import ConflictError, FencedError, InputError, StoreError
from deltastore.format.records import record_key
from deltastore.log import Log
from deltastore.stream import AsyncStream
from deltastore.validate import validate
from deltastore.writer.background import Publishing
from deltastore.writer.opening import open_writer
from tests.doubles.gates import GatedStore
from tests.doubles.models import bits, change, copy_of, tiny_model
from tests.doubles.stores import fail_always, fail_from, fail_once, memory_store
from tests.doubles.training import Trainer

from .background import begin, check, gated, settled


@pytest.fixture
def gate() -> GatedStore:
    """An empty store in memory."""
    return GatedStore(memory_store())


@pytest.fixture
async def trainer(gate: GatedStore) -> Trainer:
    """A trainer whose packs wait."""
    return await gated(gate)


class TestErrors:
    """Raised once: to who awaits it, else by the next call, else by close."""

    async def failed(self, trainer: Trainer, gate: GatedStore) -> Publishing:
        """A version that came to nothing in the background; its changes are still to be published."""
        publishing = await begin(trainer, 1)
        trainer.history.popitem()
        gate.before = fail_always("put", prefix="packs/")
        gate.open()
        await publishing.ended()
        gate.before = None
        return publishing

    @pytest.mark.spec("DS084")
    async def test_raised_by_awaiting_it(self, trainer: Trainer, gate: GatedStore) -> None:
        publishing = await self.failed(trainer, gate)
        for _ in range(2):
            with pytest.raises(StoreError):
                await publishing
        await check(trainer)
        await trainer.writer.close()

    @pytest.mark.parametrize("background", [False, True])
    @pytest.mark.spec("DS084")
    async def test_raised_by_the_next_call(
        self, trainer: Trainer, gate: GatedStore, background: bool
    ) -> None:
        await self.failed(trainer, gate)
        gate.forget()
        with pytest.raises(StoreError):
            await (trainer.writer.publish_async() if background else trainer.writer.publish())
        assert gate.calls == [], "nothing was tried"
        await check(trainer)
        await trainer.writer.close()

    async def test_raised_by_close(self, trainer: Trainer, gate: GatedStore) -> None:
        await self.failed(trainer, gate)
        with pytest.raises(StoreError):
            await trainer.writer.close()
        await trainer.writer.close()
        await check(trainer)

    async def test_raised_by_leaving_its_context(self, trainer: Trainer, gate: GatedStore) -> None:
        with pytest.raises(StoreError):
            async with trainer.writer:
                await self.failed(trainer, gate)
        await check(trainer)

    async def test_raised_by_closing_the_stream(self, gate: GatedStore) -> None:
        model = tiny_model()
        stream = await AsyncStream.create(gate, model)
        writer = await stream.writer(model)
        change(model, np.random.default_rng(0))
        gate.before = fail_always("put", prefix="packs/")
        await writer.publish_async()
        with pytest.raises(StoreError):
            await stream.close()
        await stream.close()

    @pytest.mark.parametrize("background", [False, True])
    async def test_raised_by_the_call_that_waits_for_it(
        self, trainer: Trainer, gate: GatedStore, background: bool
    ) -> None:
        """It fails only after the next call has begun to wait: that one has tried nothing, and says so."""
        await begin(trainer, 1)
        trainer.history.popitem()
        if background:
            second: asyncio.Task[Any] = asyncio.create_task(trainer.writer.publish_async())
        else:
            second = asyncio.create_task(trainer.writer.publish())
        await settled()
        gate.before = fail_always("put", prefix="packs/")
        gate.open()
        with pytest.raises(StoreError):
            await second
        gate.before = None
        await trainer.writer.close()
        await check(trainer)

    async def test_not_raised_by_the_next_call_when_somebody_awaits_it(
        self, trainer: Trainer, gate: GatedStore
    ) -> None:
        first = await begin(trainer, 1)
        trainer.history.popitem()

        async def watch() -> None:
            with pytest.raises(StoreError):
                await first

        watching = asyncio.create_task(watch())
        await settled()
        second = asyncio.create_task(trainer.writer.publish())
        await settled()
        gate.before = fail_once("put", prefix="packs/")
        gate.open()
        now = bits(trainer.model)
        assert (await second).version == 1
        trainer.history[1] = now
        await watching
        await check(trainer)

    async def test_two_failures_are_two_errors(self, trainer: Trainer, gate: GatedStore) -> None:
        gate.open()
        gate.before = fail_always("put", prefix="packs/")
        change(trainer.model, trainer.random, 1)
        await asyncio.gather(*(trainer.writer.publish_async() for _ in range(2)))
        for _ in range(2):
            with pytest.raises(StoreError):
                await trainer.writer.close()
        await trainer.writer.close()
        gate.before = None
        await check(trainer)

    async def test_close_waits_for_everything_even_where_it_raises(
        self, trainer: Trainer, gate: GatedStore
    ) -> None:
        """Two at once, of which the first fails and the second takes longer."""
        change(trainer.model, trainer.random, 1)
        first, second = await self.two_at_once(trainer, gate)
        closing = asyncio.create_task(trainer.writer.close())
        await settled()
        assert first.done
        assert not closing.done()
        gate.open()
        with pytest.raises(StoreError):
            await closing
        assert second.done

    async def two_at_once(self, trainer: Trainer, gate: GatedStore) -> tuple[Publishing, Publishing]:
        calls = [asyncio.create_task(trainer.writer.publish_async()) for _ in range(2)]
        await gate.reached(1)
        first = await calls[0]
        gate.before = fail_once("put", prefix="packs/")
        gate.through(1)
        return first, await calls[1]


class TestWhileDetecting:
    """What fails before the call returns is raised by the call, and by nothing after it."""

    async def test_tensors_that_moved(self, gate: GatedStore) -> None:
        model = {"w": torch.zeros(8, dtype=torch.bfloat16)}
        await AsyncStream.create(gate, model)
        writer = await open_writer(gate, model)
        place = model["w"].data
        model["w"].data = torch.ones(8, dtype=torch.bfloat16)
        with pytest.raises(InputError, match="other memory"):
            await writer.publish_async()
        model["w"].data = place
        await (await writer.publish_async())
        await writer.close()

    async def test_a_full_disk(self, trainer: Trainer, gate: GatedStore) -> None:
        gate.open()

        def full(*_: object) -> None:
            raise OSError(28, "no space left on device")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("deltastore.detect.snapshot.PendingPatches.add", full)
            for call in (trainer.writer.publish_async, trainer.writer.publish):
                change(trainer.model, trainer.random)
                with pytest.raises(OSError, match="no space"):
                    await call()
        await trainer.writer.close()
        await check(trainer)

    @pytest.mark.spec("DS084")
    async def test_an_upload_that_fails_while_others_are_still_to_be_found(
        self, trainer: Trainer, gate: GatedStore
    ) -> None:
        gate.open()
        gate.before = fail_from(len(gate.calls) + 2)
        change(trainer.model, trainer.random, 60)
        with pytest.raises(StoreError):
            await trainer.writer.publish_async()
        gate.before = None
        await trainer.writer.close()
        await check(trainer)

    async def test_a_writer_that_is_fenced_already(self, trainer: Trainer, gate: GatedStore) -> None:
        await open_writer(gate, copy_of(trainer.model), label="the newer")
        with pytest.raises(FencedError, match="the newer"):
            await trainer.writer.publish_async()
        await trainer.writer.close()

    @pytest.mark.parametrize(
        ("options", "error"), [({"version": 0}, ConflictError), ({"step": 0.5}, InputError)]
    )
    async def test_a_request_that_cannot_be(
        self, trainer: Trainer, gate: GatedStore, options: Any, error: type[Exception]
    ) -> None:
        with pytest.raises(error):
            await trainer.writer.publish_async(**options)
        await trainer.writer.close()
        gate.open()
        await check(trainer)


class TestOutcomes:
    """The commit of a version that nobody waits for."""

    @pytest.mark.spec("DS080")
    async def test_fenced_in_the_background(self, trainer: Trainer, gate: GatedStore) -> None:
        other = copy_of(trainer.model)
        publishing = await begin(trainer, 1)
        newer = await open_writer(gate, other, label="the newer")
        gate.open()
        with pytest.raises(FencedError, match="the newer"):
            await publishing
        with pytest.raises(FencedError, match="the newer"):
            await trainer.writer.publish_async()
        assert (await newer.publish()).version == 1
        assert (await validate(gate)).ok

    @pytest.mark.parametrize("landed", [False, True])
    @pytest.mark.parametrize("anchor", [False, True])
    @pytest.mark.spec("DS083", "DS084")
    async def test_an_unknown_outcome_is_settled_by_the_next_call(
        self, trainer: Trainer, gate: GatedStore, landed: bool, anchor: bool
    ) -> None:
        gate.prefix = "log/"
        publishing = await begin(trainer, anchor=anchor)
        slot = record_key(5)
        gate.before = fail_always("get", *(() if landed else ("put_if_absent",)), prefix=slot)
        gate.after = fail_always("put_if_absent", prefix=slot)
        await gate.reached(1)
        gate.open()
        with pytest.raises(StoreError):
            await publishing
        gate.before = gate.after = None
        assert (await Log(gate).newest_manifest()).version == (1 if landed else 0)
        change(trainer.model, trainer.random)
        now = bits(trainer.model)
        assert (await (await trainer.writer.publish_async())).version == 2
        trainer.history[2] = now
        await check(trainer)
