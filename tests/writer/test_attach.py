"""Writers that invert an optimizer's steps: from when on, and what becomes of it."""

from __future__ import annotations

import logging

import pytest
import torch

import deltastore
from deltastore.detect.inverse import AdamWInverse
from deltastore.errors import StoreError
from deltastore.layout.parts import Part
from deltastore.log import Log
from deltastore.stream import AsyncStream
from tests.doubles.stores import Call, WatchedStore, fail_always, memory_store

from .attached import Attached, parameter


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deltastore.detect")


class TestFromWhenOn:
    """An optimizer may be attached at any time."""

    async def test_opened_with_it_no_copy_is_ever_made(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("deltastore.writer.opening.Snapshot", None)
        run = await Attached.create(opened=True)
        for count in (1, 2, 5):
            run.train(count)
            published = await run.publish_exactly()
            assert published.certificate is not None
            assert published.certificate.unexplained == 0
            assert published.certificate.inverted == count * 6300
        await run.writer.close()

    @pytest.mark.parametrize("before", [0, 1, 3])
    async def test_attached_after_steps_were_taken(self, before: int) -> None:
        """The copy that the writer had says what the weights were."""
        run = await Attached.create()
        run.train(2)
        assert (await run.publish_exactly()).certificate is None
        run.train(before)
        await run.writer.attach(run.optimizer)
        run.train()
        published = await run.publish_exactly()
        assert published.certificate is not None
        run.train(2)
        await run.publish_exactly()
        await run.writer.close()

    async def test_opened_after_a_step_it_begins_with_an_anchor(self) -> None:
        run = await Attached.create()
        run.train()
        await run.open()
        assert run.writer.version is None
        assert (await run.publish()).kind == "anchor"
        run.train(2)
        await run.publish_exactly()
        await run.writer.close()

    async def test_opened_again_it_resumes(self) -> None:
        run = await Attached.create(opened=True)
        run.train(2)
        await run.publish_exactly()
        await run.writer.close()
        await run.open()
        assert run.writer.version == 1
        assert (await run.publish()).changed == 0
        run.train(3)
        await run.publish_exactly()
        await run.writer.close()

    async def test_a_version_stored_whole_is_gone_on_from(self) -> None:
        run = await Attached.create(opened=True)
        for count in (0, 1, 3):
            run.train(count)
            whole = await run.publish(anchor=True)
            assert (whole.kind, whole.certificate) == ("anchor", None)
            run.train(count)
            await run.publish_exactly()
        await run.writer.close()

    async def test_several_one_after_another(self) -> None:
        run = await Attached.create()
        first, second = (torch.optim.AdamW([param], lr=1e-4) for param in run.params)
        await run.writer.attach(first)
        await run.writer.attach([second])
        for run.optimizer in (first, second, first):
            run.train(2)
        await run.publish_exactly()
        await run.writer.close()

    async def test_attached_while_a_version_is_in_doubt(self) -> None:
        store = WatchedStore(memory_store())
        run = await Attached.create(store)
        run.train()
        store.before = fail_always("put_if_absent")
        with pytest.raises(StoreError):
            await run.writer.publish()
        store.before = None
        await run.writer.attach(run.optimizer)
        run.train(2)
        await run.publish()
        run.train()
        await run.publish_exactly()
        await run.writer.close()

    async def test_steps_go_on_while_the_outcome_is_unknown(self) -> None:
        store = WatchedStore(memory_store())
        run = await Attached.create(store, opened=True)
        lost = fail_always("put_if_absent")

        def lose_and_go_away(call: Call) -> None:
            try:
                lost(call)
            except StoreError:
                store.before = fail_always("get", "put_if_absent")
                raise

        for landed in (True, False):
            run.train(2)
            if landed:
                store.after = lose_and_go_away
            else:
                store.before = lost
            with pytest.raises(StoreError):
                await run.writer.publish()
            store.before = store.after = None
            run.train(3)
            await run.publish()
            run.train()
            await run.publish_exactly()
        await run.writer.close()

    async def test_steps_go_on_in_the_background(self) -> None:
        run = await Attached.create(opened=True)
        for _ in range(3):
            run.train(2)
            now = run.bits()
            publishing = await run.writer.publish_async()
            run.train(2)
            await publishing
            await run.caught_up(now)
        await run.publish_exactly()
        await run.writer.close()

    async def test_a_closed_writer_has_let_go(self) -> None:
        run = await Attached.create(opened=True)
        assert run.optimizer._optimizer_step_pre_hooks
        await run.writer.close()
        assert not run.optimizer._optimizer_step_pre_hooks
        assert not run.optimizer._optimizer_step_post_hooks

    async def test_a_part_of_a_tensor_is_found_in_its_optimizer(self) -> None:
        whole = parameter(64, 50)
        store = memory_store()
        stream = await AsyncStream.create(store, {"w": whole}, cast="BF16")
        halves = [Part(whole[:30], (64, 50), (0, 0)), Part(whole[30:], (64, 50), (30, 0))]
        optimizer = torch.optim.AdamW([whole])
        async with await stream.writer({"w": halves}, cast=True, optimizer=optimizer) as writer:
            before = whole.detach().bfloat16()
            for _ in range(2):
                whole.grad = torch.ones_like(whole)
                optimizer.step()
            published = await writer.publish()
            assert published.changed == int((whole.detach().bfloat16() != before).sum())
            assert published.certificate is not None
            assert published.certificate.inverted == 2 * 3200

    def test_without_an_event_loop(self) -> None:
        weights = {"w": parameter(50, 50)}
        optimizer = torch.optim.AdamW(weights.values())
        with deltastore.create(f"memory://{id(weights)}", weights, cast="BF16") as stream:
            with stream.writer(weights, cast=True) as writer:
                writer.attach(optimizer)
                weights["w"].grad = torch.ones_like(weights["w"])
                optimizer.step()
                assert writer.publish().certificate is not None
            with stream.writer(weights, cast=True, optimizer=optimizer) as writer:
                assert writer.version == 1
            assert not optimizer._optimizer_step_pre_hooks


async def test_the_manifest_says_what_was_found() -> None:
    store = memory_store()
    run = await Attached.create(store, opened=True)
    run.train()
    published = await run.publish_exactly()
    statistics = (await Log(store).newest_manifest()).statistics
    assert statistics.detector == "adamw-inversion" == AdamWInverse.name
    assert statistics.certificate == published.certificate
    assert statistics.certificate is not None
    assert statistics.certificate.blocks == 3 + 2 + 1
    await run.writer.close()
