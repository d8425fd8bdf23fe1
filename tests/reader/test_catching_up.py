"""Catching up: many deltas are one step, each element written once; a bad one holds back none before it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from deltastore.errors import CorruptError, TornError
from deltastore.format.pack import pack_key
from deltastore.reader import following
from tests.doubles.models import cut_table, small_model
from tests.doubles.stores import WatchedStore, flipped, memory_store
from tests.doubles.training import Engine, Trainer
from tests.validate.asking import delta

from .tearing import failing_scatter


class Pauses:
    """A pause that counts how often it is entered."""

    def __init__(self) -> None:
        self.entered = 0

    @asynccontextmanager
    async def pause(self) -> AsyncIterator[None]:
        self.entered += 1
        yield


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of models this small much changes in every step."""
    monkeypatch.setattr(following, "_HELD_SHARE", 1000)


@pytest.mark.usefixtures("roomy")
@pytest.mark.parametrize(("limit", "pack_bytes"), [(1 << 20, 1 << 20), (16, 300), (5, 90)])
async def test_many_deltas_are_one_step(limit: int, pack_bytes: int) -> None:
    model = small_model()
    table = cut_table(model, limit, 2)
    trainer = await Trainer.create(memory_store(), model, table=table, pack_bytes=pack_bytes)
    pauses = Pauses()
    engine = await Engine.start(trainer.store, trainer.model, pause=pauses.pause)
    await engine.reader.sync()
    await trainer.steps(30)
    pauses.entered = 0
    synced = await engine.reader.sync()
    assert (synced.previous, synced.version) == (0, 30)
    assert pauses.entered == 1
    assert engine.wrong(trainer.history) == []
    assert await engine.reader.verify()


async def test_an_element_is_written_once_with_its_last_bits(trainer: Trainer) -> None:
    engine = await Engine.start(trainer.store, trainer.model)
    await engine.reader.sync()
    for _ in range(5):
        trainer.model["model.norm.weight"].view(np.uint16)[3] += 1
        await trainer.publish()
    synced = await engine.reader.sync()
    assert (synced.changed, synced.version) == (1, engine.reader.newest)
    assert engine.wrong(trainer.history) == []


@pytest.mark.parametrize("bad", [1, 2, 4])
async def test_what_comes_before_a_bad_delta_is_written(
    trainer: Trainer, store: WatchedStore, bad: int
) -> None:
    engine = await Engine.start(trainer.store, trainer.model)
    await engine.reader.sync()
    first = engine.reader.newest
    await trainer.steps(5)
    key = pack_key(first + bad, (await delta(trainer, first + bad)).packs[0].sha256)
    sound = await store.get(key, limit=1 << 30)
    await store.put(key, flipped(sound, len(sound) - 1))
    with pytest.raises(CorruptError) as caught:
        await engine.reader.sync()
    assert caught.value.where == key
    assert engine.state() == (first + bad - 1, False)
    assert engine.wrong(trainer.history) == []
    await store.put(key, sound)
    await engine.reader.sync()
    assert engine.state() == (first + 5, False)
    assert engine.wrong(trainer.history) == []


async def test_a_step_that_takes_much_memory_is_written_in_parts(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = Pauses()
    engine = await Engine.start(trainer.store, trainer.model, pause=pauses.pause)
    await engine.reader.sync()
    monkeypatch.setattr(following, "_HELD_SHARE", 0)
    pauses.entered = 0
    await trainer.steps(4)
    await engine.reader.sync()
    assert pauses.entered == 4
    assert engine.wrong(trainer.history) == []


@pytest.mark.usefixtures("roomy")
async def test_a_torn_step_of_many_deltas_is_repaired_whole(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await Engine.start(trainer.store, trainer.model)
    await engine.reader.sync()
    first = engine.reader.newest
    await trainer.steps(4)
    with failing_scatter(monkeypatch, 2, RuntimeError("no memory")), pytest.raises(TornError):
        await engine.reader.sync()
    assert engine.state() == (None, True)
    synced = await engine.reader.sync()
    assert (synced.version, engine.state()) == (first + 4, (first + 4, False))
    assert engine.wrong(trainer.history) == []
