"""A trainer that publishes in the background, over a store whose packs wait at a gate."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import numpy as np

from deltastore.log import Log
from deltastore.validate import validate
from deltastore.writer.background import Publishing
from deltastore.writer.opening import open_writer
from tests.doubles.gates import GatedStore
from tests.doubles.models import Tensors, bits, change, cut_table, tiny_model
from tests.doubles.training import Engine, Trainer

__all__ = ["begin", "check", "gated", "is_waiting", "settled"]


async def gated(gate: GatedStore) -> Trainer:
    """A trainer of whose packs, one for each chunk, two may be on their way; the gate is shut."""
    model = tiny_model()
    trainer = await Trainer.create(gate, model, table=cut_table(model, 10))
    trainer.writer = await open_writer(gate, trainer.model, pack_bytes=1, uploads=2)
    gate.shut = True
    return trainer


async def begin(trainer: Trainer, count: int = 4, **options: Any) -> Publishing:
    """Change some elements, publish in the background, and overwrite everything at once."""
    change(trainer.model, trainer.random, count)
    now = bits(trainer.model)
    publishing = await trainer.writer.publish_async(**options)
    overwrite(trainer.model)
    trainer.history[max(trainer.history) + 1] = now
    return publishing


def overwrite(model: Tensors) -> None:
    """Other bits everywhere."""
    for tensor in model.values():
        flat = tensor.view(np.uint8).reshape(-1) if tensor.ndim else tensor.reshape(1).view(np.uint8)
        flat[...] += 101


async def settled(times: int = 50) -> None:
    """Everything that can go on without the gate has gone on."""
    for _ in range(times):
        await asyncio.sleep(0)


async def is_waiting(work: Awaitable[Any]) -> bool:
    """Whether it goes no further while the gate is shut."""
    task = asyncio.ensure_future(work)
    await settled()
    return not task.done()


async def check(trainer: Trainer) -> None:
    """Every version is there, with the bits that it had; then one more is published."""
    if isinstance(trainer.store, GatedStore):
        trainer.store.open()
    await trainer.publish()
    engine = await Engine.start(trainer.store, trainer.model)
    for version in trainer.history:
        await engine.reader.sync(version)
        assert engine.wrong(trainer.history) == []
    assert max(trainer.history) == (await Log(trainer.store).newest_manifest()).version
    assert (await validate(trainer.store)).problems == ()
