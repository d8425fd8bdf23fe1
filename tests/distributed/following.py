"""An engine that follows while trainers run, and remembers what it held."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from deltastore.stream import AsyncStream
from tests.doubles.models import BFLOAT16, Bits, Tensors, bits
from tests.doubles.training import Engine

from .sharding import SHAPES

__all__ = ["Following", "blank_engine"]


def blank_engine() -> Tensors:
    """Memory for the weights of an engine, in BF16."""
    return {name: np.full(shape, 7, BFLOAT16) for name, shape in SHAPES.items()}


@dataclass
class Following:
    """``seen``: the bits of every version that the engine was at."""

    engine: Engine
    seen: dict[int, Bits] = field(default_factory=dict)

    @classmethod
    async def begin(cls, stream: AsyncStream) -> Self:
        """At the version that is the newest now."""
        one = cls(await Engine.start(stream.store, blank_engine()))
        await one.sync()
        return one

    async def sync(self) -> None:
        """To the newest version."""
        await self.engine.reader.sync()
        version = self.engine.reader.version
        assert version is not None
        self.seen[version] = bits(self.engine.tensors)

    async def until(self, version: int) -> None:
        """Follow up to this version."""
        async with asyncio.timeout(120):
            while self.engine.reader.version != version:
                await self.engine.reader.wait(interval=0.02)
                await self.sync()
