"""One stream of a soak, from its creation to a calm end in which everything must come right."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from typing import Any, Final

from deltastore.bench.recording import RecordingStore, Request
from deltastore.bench.soak.engine import Engine
from deltastore.bench.soak.model import Tensors, copied, foreign, new_model
from deltastore.bench.soak.tally import Tally
from deltastore.bench.soak.trainer import Trainer
from deltastore.bench.soak.truth import TOKEN, Truth
from deltastore.errors import ConflictError, DeltastoreError
from deltastore.stores.base import Store
from deltastore.stores.faults import Faults, FaultyStore
from deltastore.stream import AsyncStream
from deltastore.validate import validate

__all__ = ["FAULTS", "Episode"]

_RATES: Final = Faults.rates(
    refused=0.01,
    lost=0.01,
    delayed=0.3,
    stalled=0.002,
    late=0.02,
    repeated=0.02,
    truncated=0.005,
    stale_absent=0.05,
    stale_list=0.05,
)
FAULTS: Final = replace(_RATES, delay_seconds=0.005, stall_seconds=0.05, recent_calls=16)
"""Rather more than a bad day has; few enough that a new trainer gets through the log."""


_ENGINES: Final = 3
_LIFE_SECONDS: Final = 2.0
_WALKED: Final = 50
"""Versions that a reader visits one by one at the end, at most."""


class Episode:
    """A stream in an empty store. What the actors see of the store has the faults of ``plan``."""

    def __init__(self, store: Store, seed: int, tally: Tally, plan: Faults = FAULTS) -> None:
        self._dice = random.Random(seed)
        self._tally = tally
        self._calm = RecordingStore(store, self._count)
        self._faulty = FaultyStore(self._calm, plan, seed)
        self._truth = Truth(store, tally)
        self._first = new_model(seed)
        self._newest: Tensors = self._first

    async def run(self, seconds: float) -> None:
        """Let everything happen for so long, then calm down and check the whole stream."""
        self._tally.streams += 1
        stream = await self._create()
        engines = [self._engine(number, stream) for number in range(_ENGINES)]
        async with _running(*(engine.run() for engine in engines)):
            await self._train(stream, seconds)
        await self._faulty.settle()
        self._tally.faults.update(injected.kind for injected in self._faulty.journal)
        await self._end(engines)

    def _count(self, request: Request) -> None:
        self._tally.requests[request.operation] += 1

    async def _create(self) -> AsyncStream:
        """A stream whose version 0 is the model; creating it may fail half way, and is taken up again."""
        while True:
            try:
                token = self._truth.note(self._first)
                return await AsyncStream.create(self._faulty, self._first, metadata={TOKEN: token})
            except ConflictError:
                return AsyncStream(self._faulty)  # the reply of the attempt before was lost
            except DeltastoreError as error:
                self._tally.publishing[error.code] += 1

    def _engine(self, number: int, stream: AsyncStream) -> Engine:
        dice = random.Random(self._dice.getrandbits(64))
        tensors = foreign(self._first) if number % 2 else copied(self._first)
        return Engine(f"engine {number}", stream, tensors, self._truth, self._tally, dice)

    async def _train(self, stream: AsyncStream, seconds: float) -> None:
        """One trainer after the other; some of those before go on, and find out that they are fenced."""
        end = asyncio.get_running_loop().time() + seconds
        async with contextlib.AsyncExitStack() as zombies:
            while (left := end - asyncio.get_running_loop().time()) > 0:
                trainer = Trainer(
                    stream,
                    await self._weights(),
                    self._truth,
                    self._tally,
                    random.Random(self._dice.getrandbits(64)),
                )
                zombies.push_async_callback(trainer.close)
                tasks = await zombies.enter_async_context(_running(trainer.run()))
                await asyncio.wait(tasks, timeout=min(self._dice.uniform(0, _LIFE_SECONDS), left))
                await self._fate(trainer, tasks)
                self._newest = trainer.model

    async def _fate(self, trainer: Trainer, tasks: set[asyncio.Task[None]]) -> None:
        fate = self._dice.choice(("stopped", "cancelled", "left running"))
        self._tally.trainers[fate] += 1
        if fate == "stopped":
            trainer.stop()
            await asyncio.wait(tasks)
        elif fate == "cancelled":
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _weights(self) -> Tensors:
        """What the next trainer starts from: its predecessor's weights, an old version, or a stranger's."""
        start = self._dice.choice(("predecessor", "version", "version", "stranger"))
        model = copied(self._newest)
        if start == "stranger":
            return foreign(model)
        await self._truth.learn()
        if start == "version" and self._truth.tokens:
            reader = await AsyncStream(self._calm).reader(model)
            await reader.sync(self._dice.choice(sorted(self._truth.tokens)[-5:]))
        return model

    async def _end(self, engines: list[Engine]) -> None:
        """On a store without faults: a trainer can publish, every engine gets there, nothing is damaged."""
        stream = AsyncStream(self._calm)
        model = copied(self._newest)
        writer = await stream.writer(model)
        token = self._truth.note(model)
        published = await writer.publish(metadata={TOKEN: token})
        await self._truth.published(published.version, token)
        for engine in engines:
            await engine.settle(stream)
        reader = await stream.reader(model)
        versions = sorted(self._truth.tokens)
        for version in self._dice.sample(versions, min(len(versions), _WALKED)):
            await reader.sync(version)
            await self._truth.compare(version, model, "a reader at the end")
        problems = (await validate(self._calm)).problems
        self._tally.problems += [f"validate: {problem}" for problem in problems]


@contextlib.asynccontextmanager
async def _running(*works: Coroutine[Any, Any, None]) -> AsyncIterator[set[asyncio.Task[None]]]:
    """The works as tasks that have ended when the block has; what one raised is raised."""
    tasks = {asyncio.create_task(work) for work in works}
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
