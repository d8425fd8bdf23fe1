"""Publishing in the background: a version is the tensors as they were, and versions keep their order."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

from deltastore.log import Log
from deltastore.stream import AsyncStream
from deltastore.writer.opening import open_writer
from tests.doubles.gates import GatedStore
from tests.doubles.models import bf16, bits, change, small_model, tiny_model
from tests.doubles.stores import contents, memory_store
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


class TestWhatIsPublished:
    """The tensors as they were at the call."""

    @pytest.mark.parametrize("anchor", [False, True])
    async def test_tensors_may_be_overwritten_as_soon_as_it_returns(
        self, trainer: Trainer, gate: GatedStore, anchor: bool
    ) -> None:
        gate.prefix = ""
        publishing = await begin(trainer, 1, anchor=anchor)
        assert not publishing.done
        assert (await Log(gate).newest_manifest()).version == 0
        gate.open()
        published = await publishing
        assert (published.version, published.kind) == (1, "anchor" if anchor else "delta")
        await check(trainer)

    async def test_many_versions_one_after_another(self) -> None:
        trainer = await Trainer.create(memory_store(), small_model())
        handles = [await begin(trainer, 3 * number, anchor=number % 4 == 3) for number in range(12)]
        assert [(await handle).version for handle in handles] == list(range(1, 13))
        await check(trainer)

    @pytest.mark.parametrize("anchor", [False, True])
    async def test_tensors_that_are_rounded(self, gate: GatedStore, anchor: bool) -> None:
        model = {"w": torch.randn(40, 30), "v": torch.randn(9)}
        narrow = {name: tensor.bfloat16() for name, tensor in model.items()}
        await AsyncStream.create(gate, narrow)
        writer = await open_writer(gate, model, cast=True)
        gate.shut = True
        with torch.no_grad():
            model["w"][:, ::3] += 1
        wanted = {name: tensor.bfloat16() for name, tensor in model.items()}
        publishing = await writer.publish_async(anchor=anchor)
        for tensor in model.values():
            tensor.zero_()
        gate.open()
        await publishing
        engine = {name: torch.zeros_like(tensor) for name, tensor in narrow.items()}
        await (await (await AsyncStream.open(gate)).reader(engine)).sync(1)
        for name, tensor in wanted.items():
            assert torch.equal(engine[name].view(torch.int16), tensor.view(torch.int16))

    async def test_what_came_after_the_call_is_in_the_next_version(
        self, trainer: Trainer, gate: GatedStore
    ) -> None:
        trainer.model["norm"][0] = bf16(0x0777)
        publishing = await trainer.writer.publish_async()
        trainer.model["norm"][0] = bf16(0x0888)
        gate.open()
        assert (await publishing).changed == 1
        assert (await trainer.writer.publish()).changed == 1


class TestBackPressure:
    """Few bytes wait in memory, and versions keep their order."""

    async def test_it_returns_when_all_packs_that_are_left_are_on_their_way(
        self, trainer: Trainer, gate: GatedStore
    ) -> None:
        task = asyncio.create_task(begin(trainer, 60))
        await gate.reached(2)
        passed = 0
        while not task.done():
            assert gate.waiting == 2
            gate.through(1)
            passed += 1
            await settled()
        publishing = await task
        assert not publishing.done
        assert (await Log(gate).newest_manifest()).version == 0
        gate.open()
        assert (await publishing).version == 1
        packs = [key for key in gate.keys("put") if key.startswith("packs/")]
        assert len(packs) == passed + 2 > 6
        assert gate.most == 2
        await check(trainer)

    @pytest.mark.parametrize("uploads", [1, 3])
    async def test_no_more_packs_than_agreed_are_ever_on_their_way(
        self, gate: GatedStore, uploads: int
    ) -> None:
        trainer = await Trainer.create(gate, small_model())
        trainer.writer = await open_writer(gate, trainer.model, pack_bytes=1, uploads=uploads)
        gate.shut = True
        for _ in range(3):
            task = asyncio.create_task(begin(trainer, 60))
            while not task.done():
                await settled(20)
                gate.through(1)
        gate.open()
        await check(trainer)
        assert gate.most == uploads

    @pytest.mark.parametrize("background", [False, True])
    async def test_a_second_call_waits_for_the_first(
        self, trainer: Trainer, gate: GatedStore, background: bool
    ) -> None:
        first = await begin(trainer, 1)
        change(trainer.model, trainer.random, 1)
        gate.forget()
        if background:
            second: asyncio.Task[Any] = asyncio.create_task(trainer.writer.publish_async())
        else:
            second = asyncio.create_task(trainer.writer.publish())
        await settled()
        assert not second.done()
        assert gate.calls == []
        now = bits(trainer.model)
        gate.open()
        await second
        assert first.done
        trainer.history[2] = now
        await check(trainer)

    async def test_calls_at_once_keep_their_order(self, trainer: Trainer, gate: GatedStore) -> None:
        gate.open()
        change(trainer.model, trainer.random)
        handles = await asyncio.gather(*(trainer.writer.publish_async(step=number) for number in range(5)))
        assert [(await handle).version for handle in handles] == [1, 2, 3, 4, 5]
        log = Log(gate)
        assert [(await log.manifest(version)).metadata["step"] for version in range(1, 6)] == [0, 1, 2, 3, 4]


class TestClosing:
    """It waits."""

    async def test_of_the_writer(self, trainer: Trainer, gate: GatedStore) -> None:
        first = await begin(trainer, 1)
        closing = asyncio.create_task(trainer.writer.close())
        await settled()
        assert not closing.done()
        gate.open()
        await closing
        assert first.done
        assert (await Log(gate).newest_manifest()).version == 1
        await check(trainer)

    async def test_of_the_stream(self) -> None:
        class Closing(GatedStore):
            closed_at = -1

            async def close(self) -> None:
                self.closed_at = len(self.calls)

        gate = Closing(memory_store())
        model = tiny_model()
        async with await AsyncStream.create(gate, model) as stream:
            writer = await stream.writer(model)
            change(model, np.random.default_rng(0))
            gate.shut = True
            await writer.publish_async()
            asyncio.get_running_loop().call_later(0.01, gate.open)
        assert gate.closed_at == len(gate.calls)
        assert gate.keys("put_if_absent")[-1].startswith("log/")
        assert (await Log(gate).newest_manifest()).version == 1


async def test_nothing_is_left_of_an_abandoned_version(trainer: Trainer, gate: GatedStore) -> None:
    """A cancelled call has put nothing that a later version names."""
    change(trainer.model, trainer.random, 60)
    task = asyncio.create_task(trainer.writer.publish_async())
    await gate.reached(2)
    task.cancel()
    await asyncio.wait({task})
    gate.open()
    assert [key for key in await contents(gate) if key.startswith("packs/")] == []
    await check(trainer)
