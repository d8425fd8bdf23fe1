"""Two trainers of one stream on SeaweedFS: one wins and the other learns who; one has older weights."""

from __future__ import annotations

import asyncio
import itertools

import numpy as np
import pytest

from deltastore.errors import FencedError
from deltastore.format.records import DeltaRecord, EpochRecord
from deltastore.log import Log
from deltastore.replay import find_path
from deltastore.stores import open_store
from deltastore.stores.base import Store
from deltastore.stream import AsyncStream
from deltastore.validate import validate
from deltastore.writer.published import Published
from tests.doubles.models import Bits, bits, change, copy_of, differing, tiny_model
from tests.doubles.stores import WatchedStore
from tests.doubles.training import Engine
from tests.servers.server import Server

from .together import WRITERS, Together

numbers = itertools.count()


def new_store(weed: Server) -> WatchedStore:
    """An empty place of its own."""
    return WatchedStore(open_store(weed.url(weed.bucket("distributed"), f"two/{next(numbers)}")))


@pytest.mark.parametrize(("first", "second"), [(1, WRITERS), (WRITERS, 1), (WRITERS, WRITERS)])
@pytest.mark.spec("DS003", "DS080", "DS082")
async def test_one_wins_and_the_other_is_told_who(weed: Server, first: int, second: int) -> None:
    async with new_store(weed) as store:
        model = tiny_model(1)
        await AsyncStream.create(store, model)
        models = {"trainer A": copy_of(model), "trainer B": copy_of(model)}
        opened = await asyncio.gather(
            Together.open(store, models["trainer A"], first, label="trainer A", run="a"),
            Together.open(store, models["trainer B"], second, label="trainer B", run="b"),
        )
        trainers = dict(zip(models, opened, strict=True))
        for seed, mine in enumerate(models.values()):
            change(mine, np.random.default_rng(seed), 8)
        ends = dict(zip(models, await asyncio.gather(*(one.tried(version=7) for one in opened)), strict=True))
        loser, winner = sorted(trainers, key=lambda name: trainers[name].epoch)
        assert all(isinstance(end, Published) and end.version == 7 for end in ends[winner])
        assert all(isinstance(end, FencedError) and f"({winner})" in str(end) for end in ends[loser])
        assert all(isinstance(end, FencedError) for end in await trainers[loser].tried(version=8))
        engine = await Engine.start(store, model)
        await engine.reader.sync()
        assert engine.reader.version == 7
        assert differing(engine.tensors, bits(models[winner])) == []
        assert (await validate(store)).problems == ()


async def published_until_57(store: Store, writers: int) -> dict[int, Bits]:
    """A trainer publishes versions 40, 41, 56 and 57; the bits of each."""
    model = tiny_model(1)
    await AsyncStream.create(store, model)
    history = {0: bits(model)}
    trainer = await Together.open(store, model, writers, label="before", run="before")
    for version in (40, 41, 56, 57):
        change(model, np.random.default_rng(version), 8)
        assert await trainer.publish(version=version) == version
        history[version] = bits(model)
    return history


@pytest.mark.parametrize("writers", [1, WRITERS])
@pytest.mark.spec("DS060", "DS080", "DS091")
async def test_a_trainer_restarts_from_an_older_version(weed: Server, writers: int) -> None:
    async with new_store(weed) as store:
        history = await published_until_57(store, writers)
        ahead, back = [await Engine.start(store, tiny_model(1)) for _ in range(2)]
        await ahead.reader.sync()
        await back.reader.sync(41)
        model = tiny_model(1)
        for name, old in history[41].items():
            model[name].view(old.dtype)[...] = old
        trainer = await Together.open(store, model, writers, label="after", run="after")
        assert trainer.version == 41
        epoch = await Log(store).tip()
        assert isinstance(epoch, EpochRecord)
        assert (epoch.resumes, epoch.writer) == (41, "after")
        change(model, np.random.default_rng(58), 8)
        assert await trainer.publish() == 58
        history[58] = bits(model)
        await follows(store, ahead, back, history)
        assert (await validate(store)).problems == ()


async def follows(store: WatchedStore, ahead: Engine, back: Engine, history: dict[int, Bits]) -> None:
    """An engine at 57 gets to 58 through the anchor, one at 41 by the delta; every version can be reached."""
    log = Log(store)
    newest = await log.newest_manifest()
    assert isinstance(newest, DeltaRecord)
    assert newest.base == 41
    path = await find_path(log, newest, at=57)
    assert path.anchor is not None
    assert [path.anchor.version, *(one.version for one in path.deltas)] == [0, 40, 41, 58]
    short = await find_path(log, newest, at=41)
    assert (short.anchor, [one.version for one in short.deltas]) == (None, [58])
    assert (ahead.reader.version, back.reader.version) == (57, 41)
    for engine, through_anchor in ((ahead, True), (back, False)):
        store.forget()
        await engine.reader.sync()
        assert engine.reader.version == 58
        assert engine.wrong(history) == []
        assert any(key.startswith("anchors/") for key in store.keys("get")) == through_anchor
    for version in (41, 57, 0, 58, 56, 40):
        await ahead.reader.sync(version)
        assert ahead.reader.version == version
        assert ahead.wrong(history) == []
