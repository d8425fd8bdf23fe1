"""A stream with several writers, and what an engine and a validator make of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

from deltastore.format.records import AnchorRecord, DeltaRecord, EpochRecord
from deltastore.layout.live import LiveWeights
from deltastore.log import Log, Manifest
from deltastore.stores.memory import MemoryStore
from deltastore.validate import validate
from deltastore.writer.published import Published
from deltastore.writer.whole import create_stream
from tests.doubles.models import Bits, Tensors, bits, copy_of, cut_table, tiny_model
from tests.doubles.stores import memory_store
from tests.doubles.training import Engine

from .teams import Team, errors_of

__all__ = ["Scene"]


@dataclass
class Scene:
    """A store with a stream, the model that is published, and the bits of every version."""

    store: MemoryStore
    model: Tensors
    history: dict[int, Bits] = field(default_factory=dict)

    @classmethod
    async def set(cls, model: Tensors | None = None, *, limit: int = 16) -> Self:
        """Version 0 of a small model, in chunks that ranks share."""
        scene = cls(memory_store(), tiny_model() if model is None else model)
        await create_stream(scene.store, LiveWeights(cut_table(scene.model, limit), scene.model))
        scene.remember(0)
        return scene

    def remember(self, version: int) -> None:
        """The model as it is now is this version."""
        self.history[version] = bits(self.model)

    async def team(self, ranks: int = 3, **options: Any) -> Team:
        """A new incarnation of the trainer, that has begun its epoch."""
        return await Team.opened(self.store, self.model, ranks, **options)

    async def published(self, team: Team, **options: Any) -> int:
        """A version that all ranks agree on."""
        done = await team.agreed(**options)
        self.remember(done.version)
        return done.version

    async def records(self) -> list[Any]:
        return [record async for record in Log(self.store).forwards()]

    async def manifests(self) -> list[Manifest]:
        return [one for one in await self.records() if isinstance(one, AnchorRecord | DeltaRecord)]

    async def epochs(self) -> list[EpochRecord]:
        return [one for one in await self.records() if isinstance(one, EpochRecord)]

    async def versions(self) -> list[int]:
        return [one.version for one in await self.manifests()]

    async def keys(self, prefix: str) -> list[str]:
        return [info.key async for info in self.store.list(prefix)]

    async def check(self) -> None:
        """The stream is sound, and every version of it is to the bit what was remembered."""
        report = await validate(self.store)
        assert report.problems == ()
        assert await self.versions() == sorted(self.history)
        for version in self.history:
            engine = await Engine.start(self.store, self.model)
            await engine.reader.sync(version)
            assert engine.wrong(self.history) == []

    async def recovers(self, team: Team) -> None:
        """The same changes are part of the next call, from all ranks, and the version is whole."""
        before = len(self.history)
        for _ in range(2):
            outcomes = await team.publish()
            if not any(errors_of(outcomes)):
                break
        done = outcomes[0]
        assert isinstance(done, Published)
        self.remember(done.version)
        assert len(self.history) == before + 1
        await self.check()

    def apart(self) -> Tensors:
        """The model in memory of its own: that of another process."""
        return copy_of(self.model)
