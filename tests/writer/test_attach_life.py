"""What becomes of a writer with an optimizer in the course of a training run."""

from __future__ import annotations

import gc
import logging
from typing import Any

import pytest
import torch

import deltastore
from deltastore.errors import InputError, StoreError
from tests.doubles.stores import WatchedStore, fail_once, memory_store
from tests.writer.attached import Attached, parameter


def hooks_of(optimizer: torch.optim.Optimizer) -> int:
    return len(optimizer._optimizer_step_pre_hooks) + len(optimizer._optimizer_step_post_hooks)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize("every", [1, 3])
async def test_a_compiled_step(every: int) -> None:
    """The hooks are no part of its graph. It corrects the bias in FP32, which may cost a block."""
    run = await Attached.create(opened=True)

    @torch.compile(backend="eager")
    def step() -> None:
        run.optimizer.step()

    for _ in range(2):
        for _ in range(every):
            for param in run.params:
                param.grad = torch.randn(param.shape, generator=run.random)
            step()
        published = await run.publish()
        assert published.certificate is not None
        assert published.certificate.inverted == every * 6300
    await run.writer.close()
    torch.compiler.reset()


async def test_an_optimizer_that_owns_nothing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """What it moves all the same is sent whole twice, and then compared with a copy."""
    run = await Attached.create()
    masters = [torch.nn.Parameter(param.detach().clone()) for param in run.params]
    other = torch.optim.AdamW(masters, lr=1e-4)
    await run.writer.attach(other)
    assert "AdamW: none of its parameters is a published tensor" in warnings_in(caplog)[0]
    sent = []
    for _ in range(4):
        for master in masters:
            master.grad = torch.randn(master.shape, generator=run.random)
        other.step()
        with torch.no_grad():
            for param, master in zip(run.params, masters, strict=True):
                param.copy_(master)
        sent.append((await run.publish()).changed)
    assert sent[:2] == [6300, 6300]
    assert max(sent[2:]) < 4500
    assert sum("is moved by no attached optimizer" in line for line in warnings_in(caplog)) == 2
    await run.writer.close()


async def test_nothing_to_attach_is_told(caplog: pytest.LogCaptureFixture) -> None:
    run = await Attached.create()
    await run.writer.attach([])
    assert warnings_in(caplog) == ["there is no optimizer in what was attached"]


async def test_attached_twice() -> None:
    run = await Attached.create(opened=True)
    with pytest.raises(InputError, match="this AdamW is attached already"):
        await run.writer.attach(run.optimizer)
    await run.writer.close()


def test_a_writer_that_is_dropped_leaves_no_hook() -> None:
    tensors = {"a": parameter(40)}
    optimizer = torch.optim.AdamW(tensors.values())
    with deltastore.create(memory_store(), tensors, cast="BF16") as stream:
        stream.writer(tensors, cast=True, optimizer=optimizer)
        assert hooks_of(optimizer) == 2
        stream._core._writers.clear()
        gc.collect()
        assert hooks_of(optimizer) == 0


async def test_a_writer_that_was_closed_says_why_it_sends_so_much(caplog: pytest.LogCaptureFixture) -> None:
    run = await Attached.create(opened=True)
    await run.writer.close()
    assert hooks_of(run.optimizer) == 0
    run.train()
    assert (await run.publish()).changed == 6300
    assert "no optimizer is attached any more" in warnings_in(caplog)[-1]
    await run.writer.attach(run.optimizer)
    run.train()
    await run.publish_exactly()
    await run.writer.close()


@pytest.mark.parametrize("first", [True, False])
def test_published_by_a_hook_of_the_step(first: bool) -> None:
    """Whether the trainer's hook comes before the writer's or after."""
    tensors: dict[str, Any] = {"a": parameter(70, 60)}
    optimizer = torch.optim.AdamW(tensors.values(), lr=1e-4)
    found = []

    def publish(*_: object) -> None:
        found.append(writer.publish().certificate)

    with deltastore.create(memory_store(), tensors, cast="BF16") as stream:
        if first:
            optimizer.register_step_post_hook(publish)
        writer = stream.writer(tensors, cast=True, optimizer=optimizer)
        if not first:
            optimizer.register_step_post_hook(publish)
        for _ in range(3):
            tensors["a"].grad = torch.randn(70, 60)
            optimizer.step()
    assert [(one.inverted, one.unexplained) for one in found if one] == [(4200, 0)] * 3


async def test_parameters_are_exchanged_within_a_group() -> None:
    """As where layers are trained in turn."""
    run = await Attached.create(opened=True)
    a, b = run.params
    for trained in ([a], [b], [a, b], [b]):
        run.optimizer.param_groups[0]["params"] = trained
        run.train(2)
        published = await run.publish_exactly()
        assert published.certificate is not None
        assert published.certificate.inverted == 2 * sum(param.numel() for param in trained)
    await run.writer.close()


async def test_a_whole_version_that_fails_is_not_owed() -> None:
    """Nothing was lost of what stands published, so the next version is a delta again."""
    store = WatchedStore(memory_store())
    run = await Attached.create(store, opened=True)
    run.train()
    await run.publish_exactly()
    run.train()
    store.before = fail_once("put", "anchors/")
    with pytest.raises(StoreError):
        await run.writer.publish(anchor=True)
    run.train()
    await run.publish_exactly()
    await run.writer.close()


async def test_steps_before_a_whole_version_are_no_part_of_the_next_certificate() -> None:
    run = await Attached.create(opened=True)
    run.train(3)
    assert (await run.publish(anchor=True)).certificate is None
    run.train()
    published = await run.publish_exactly()
    assert published.certificate is not None
    assert published.certificate.inverted == 6300
    await run.writer.close()
