"""A trainer on a small model that remembers the bits of every version it published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from deltastore.format.table import TensorTable
from deltastore.layout.cutting import plain_table
from deltastore.layout.live import LiveWeights, live_specs
from deltastore.reader.following import AsyncReader
from deltastore.reader.opening import open_reader
from deltastore.stores.base import Store
from deltastore.writer.opening import open_writer
from deltastore.writer.published import Published
from deltastore.writer.publishing import AsyncWriter
from deltastore.writer.whole import create_stream
from tests.doubles.models import Bits, Tensors, bits, blank, change, copy_of, differing


@dataclass
class Trainer:
    """A model, its writer, and the bits of every version so far."""

    store: Store
    model: Tensors
    writer: AsyncWriter
    history: dict[int, Bits] = field(default_factory=dict)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    @classmethod
    async def create(
        cls, store: Store, model: Tensors, *, table: TensorTable | None = None, pack_bytes: int = 1
    ) -> Self:
        """A new stream with version 0. By default every changed chunk becomes a pack of its own."""
        table = table or plain_table(live_specs(model))
        await create_stream(store, LiveWeights(table, model))
        trainer = cls(store, model, await open_writer(store, model, pack_bytes=pack_bytes))
        trainer.history[0] = bits(model)
        return trainer

    async def publish(self, **options: Any) -> Published:
        """Publish the model as it is."""
        published = await self.writer.publish(**options)
        self.history[published.version] = bits(self.model)
        return published

    async def step(self, count: int = 4, **options: Any) -> Published:
        """Change some elements and publish."""
        change(self.model, self.random, count)
        return await self.publish(**options)

    async def steps(self, versions: int, count: int = 4) -> None:
        """Several steps."""
        for _ in range(versions):
            await self.step(count)

    async def reopen(self, **options: Any) -> None:
        """A new epoch of the same model."""
        self.writer = await open_writer(self.store, self.model, pack_bytes=1, **options)

    def load(self, version: int) -> None:
        """Put a version's bits back into the model, as a trainer that loads an old checkpoint."""
        for name, old in self.history[version].items():
            self.model[name].view(old.dtype)[...] = old

    def copy(self) -> Tensors:
        """The model in memory of its own."""
        return copy_of(self.model)


@dataclass
class Engine:
    """Live tensors and the reader that keeps them."""

    tensors: Tensors
    reader: AsyncReader

    @classmethod
    async def start(
        cls, store: Store, like: Mapping[str, Any], *, loaded: bool = False, **options: Any
    ) -> Self:
        """An engine with other bits in its memory, or with those of ``like``."""
        tensors = copy_of(like) if loaded else blank(like)
        return cls(tensors, await open_reader(store, tensors, **options))

    def state(self) -> tuple[int | None, bool]:
        """The version that the reader reports, and whether it says that it is torn."""
        return self.reader.version, self.reader.torn

    def wrong(self, history: Mapping[int, Bits]) -> list[str]:
        """The tensors that do not hold the version that the reader reports."""
        version = self.reader.version
        if version is None:
            raise AssertionError("the reader reports no version")
        return differing(self.tensors, history[version])
