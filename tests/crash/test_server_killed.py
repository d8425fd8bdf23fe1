"""kill -9 of SeaweedFS while trainers publish and engines follow: what it had acknowledged is all there."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deltastore.errors import ConflictError, StoreError
from deltastore.format.records import AnchorRecord, DeltaRecord
from deltastore.log import Log
from deltastore.stores.address import parse_bucket
from deltastore.stores.base import Store
from deltastore.stores.retrying import Retrying
from deltastore.stores.s3 import S3Store
from deltastore.stream import AsyncStream
from deltastore.validate import validate
from deltastore.writer.published import Published
from tests.distributed.together import WRITERS, Together
from tests.doubles.models import Bits, Tensors, bits, change, differing, tiny_model
from tests.doubles.stores import memory_store
from tests.doubles.training import Engine
from tests.servers.server import Server
from tests.servers.weed import running_weed

ALONE, TOGETHER = 80, 20
KILLED_AT = (30, 65, 84, 93)
DOWN_SECONDS = 0.4
PATIENCE_SECONDS = 2.0
ANCHOR_EVERY = 20


def impatient(server: Server) -> S3Store:
    """A store that does not wait for its server to come back: its callers have to."""
    url = server.url(server.bucket("killed"), "stream")
    return S3Store(parse_bucket("s3", url.removeprefix("s3://")), retrying=Retrying(deadline=0.2))


@dataclass
class Training:
    """A trainer that does not go on to its next step before it knows that this one is published.

    ``steps``: the bits after each step. ``acknowledged``: the steps of versions that some writer was told of.
    """

    store: Store
    model: Tensors
    steps: list[Bits] = field(default_factory=list)
    acknowledged: dict[int, int] = field(default_factory=dict)
    failures: int = 0
    moved: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def reached(self, count: int) -> None:
        """Wait until so many steps have begun."""
        async with self.moved:
            await self.moved.wait_for(lambda: len(self.steps) >= count)

    async def go(self, trainer: Together, count: int) -> None:
        for _ in range(count):
            change(self.model, np.random.default_rng(len(self.steps)), 6)
            async with self.moved:
                self.steps.append(bits(self.model))
                self.moved.notify_all()
            while not await self._published(trainer):
                self.failures += 1

    async def _published(self, trainer: Together) -> bool:
        """Whether all writers know; as long as one does not, all call again."""
        step = len(self.steps) - 1
        options: dict[str, Any] = {"step": step, "anchor": step % ANCHOR_EVERY == ANCHOR_EVERY - 1}
        ends = await trainer.tried(**options)
        for end in ends:
            if isinstance(end, ConflictError):
                assert end.code in ("aborted", "undecided")
            elif isinstance(end, Published):
                self.acknowledged[end.version] = step
            elif not isinstance(end, StoreError):
                raise end
        return not any(isinstance(end, BaseException) for end in ends)


@dataclass
class Following:
    """An engine that follows until it is cancelled. ``seen``: the version after each sync, and its bits."""

    engine: Engine
    lag: float
    seen: list[tuple[int, Bits]] = field(default_factory=list)

    async def go(self) -> None:
        while True:
            with contextlib.suppress(StoreError):
                await self.sync()
            await asyncio.sleep(self.lag)

    async def sync(self) -> None:
        if await self.engine.reader.poll():
            version = (await self.engine.reader.sync()).version
            self.seen.append((version, bits(self.engine.tensors)))


async def kill_at(server: Server, training: Training, moments: tuple[int, ...]) -> None:
    """Kill the server each time that so many steps have begun, and start it again a little later."""
    chance = random.Random(0)
    for moment in moments:
        await training.reached(moment)
        await asyncio.sleep(chance.uniform(0, 0.03))
        server.kill()
        await asyncio.sleep(DOWN_SECONDS)
        server.process.restart()  # in this thread: the server dies with the one that started it
        await asyncio.to_thread(server.wait_until_ready)


async def train(training: Training) -> None:
    """One process at first; then four take over."""
    training.steps.append(bits(training.model))
    training.acknowledged[0] = 0
    for writers, count in ((1, ALONE), (WRITERS, TOGETHER)):
        await training.go(await opened(training, writers), count)


async def opened(training: Training, writers: int) -> Together:
    """A trainer; one whose writers do not find each other in time starts again."""
    for attempt in itertools.count():
        with contextlib.suppress(ConflictError):
            return await Together.open(
                training.store,
                training.model,
                writers,
                label=f"a trainer of {writers}",
                run=f"start-{attempt}",
                patience=PATIENCE_SECONDS,
            )
    raise AssertionError("counting ends")


@contextlib.asynccontextmanager
async def meanwhile(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run these beside the block, and cancel what is not done at its end."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException) and not isinstance(end, asyncio.CancelledError):
            raise end


async def copied_stream(store: Store) -> Store:
    """What readers need of a stream, in memory."""
    copy = memory_store()
    for prefix in ("log/", "tables/", "anchors/", "packs/"):
        async for info in store.list(prefix):
            await copy.put(info.key, await store.get(info.key, limit=info.size))
    return copy


@pytest.mark.spec("DS002", "DS005", "DS083", "DS084", "DS088")
async def test_versions_outlive_the_server(s3_credentials: None, tmp_path: Path) -> None:
    with running_weed(tmp_path / "weed") as server:
        async with impatient(server) as store:
            training = Training(store, tiny_model(1))
            await AsyncStream.create(store, training.model, metadata={"step": 0})
            followers = [
                Following(await Engine.start(store, training.model), lag) for lag in (0.02, 0.1, 0.3)
            ]
            async with meanwhile(*(one.go() for one in followers)), asyncio.TaskGroup() as group:
                group.create_task(kill_at(server, training, KILLED_AT))
                group.create_task(train(training))
            for one in followers:
                await one.sync()
            copy = await copied_stream(store)
    await check(training, copy, followers)


async def check(training: Training, copy: Store, followers: list[Following]) -> None:
    manifests = [one async for one in Log(copy).forwards() if isinstance(one, AnchorRecord | DeltaRecord)]
    steps = {one.version: one.metadata["step"] for one in manifests}
    assert training.failures >= 1
    assert training.acknowledged.items() <= steps.items()
    assert set(steps.values()) == set(range(1 + ALONE + TOGETHER))
    assert (await validate(copy)).problems == ()
    for one in followers:
        assert one.seen[-1][0] == manifests[-1].version
        assert len(one.seen) > 3
        for version, found in one.seen:
            assert differing(found, training.steps[int(str(steps[version]))]) == []
