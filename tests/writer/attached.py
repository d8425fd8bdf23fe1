"""A torch model with an optimizer, a stream of it, and an engine that must have every bit of each version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch

from deltastore.reader.following import AsyncReader
from deltastore.stores.base import Store
from deltastore.stream import AsyncStream
from deltastore.writer.published import Published
from deltastore.writer.publishing import AsyncWriter
from tests.detect.trainers import step
from tests.doubles.stores import memory_store

__all__ = ["Attached", "parameter"]


def parameter(*shape: int, seed: int = 1) -> torch.nn.Parameter:
    """Small FP32 weights."""
    random = torch.Generator().manual_seed(seed)
    return torch.nn.Parameter(torch.randn(shape, generator=random) * 0.02)


class Attached:
    """``a`` and ``b`` belong to the optimizer, ``buffer`` to nobody."""

    writer: AsyncWriter
    stream: AsyncStream
    reader: AsyncReader
    engine: dict[str, torch.Tensor]

    def __init__(self, kind: Callable[..., torch.optim.Optimizer], **options: Any) -> None:
        torch.set_num_threads(1)
        self.tensors: dict[str, Any] = {
            "a": parameter(70, 60),
            "b": parameter(2100),
            "buffer": torch.arange(6, dtype=torch.int64),
        }
        self.params = [self.tensors["a"], self.tensors["b"]]
        self.optimizer: Any = kind(self.params, **{"lr": 1e-4, **options})
        self.random = torch.Generator().manual_seed(2)
        self.published = self.bits()

    @classmethod
    async def create(
        cls,
        store: Store | None = None,
        kind: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
        *,
        opened: bool = False,
        **options: Any,
    ) -> Self:
        """A new stream; its writer is ``opened`` with the optimizer, or has none yet."""
        made = cls(kind, **options)
        made.stream = await AsyncStream.create(store or memory_store(), made.tensors, cast="BF16")
        await made.open(opened)
        made.engine = {name: torch.from_numpy(np.zeros_like(bits)) for name, bits in made.published.items()}
        made.reader = await made.stream.reader(made.engine)
        return made

    async def open(self, with_optimizer: bool = True) -> None:
        """A new writer."""
        given = self.optimizer if with_optimizer else None
        self.writer = await self.stream.writer(self.tensors, cast=True, optimizer=given)

    def bits(self) -> dict[str, np.ndarray[Any, Any]]:
        """What is to be published: a copy, BF16 as unsigned integers."""
        return {name: _bits(tensor.detach()) for name, tensor in self.tensors.items()}

    def train(self, count: int = 1) -> None:
        """Steps with fresh gradients."""
        for _ in range(count):
            step([self.optimizer], self.random)

    async def publish(self, **options: Any) -> Published:
        """A version, which the engine has when this returns."""
        now = self.bits()
        published = await self.writer.publish(**options)
        await self.caught_up(now)
        return published

    async def caught_up(self, now: dict[str, np.ndarray[Any, Any]]) -> None:
        """The newest version has these bits."""
        await self.reader.sync()
        held = {name: self.engine[name].numpy().tobytes() for name in now}
        assert [name for name, bits in now.items() if held[name] != bits.tobytes()] == []
        self.published = now

    async def publish_exactly(self) -> Published:
        """A version in which exactly what changed was sent."""
        now = self.bits()
        changed = sum(int((now[name] != before).sum()) for name, before in self.published.items())
        published = await self.publish()
        assert (published.kind, published.changed) == ("delta", changed)
        return published


def _bits(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """BF16 for FP32, with one NaN for each sign; others as they are."""
    if tensor.dtype != torch.float32:
        return tensor.numpy().copy()
    wide = tensor.numpy().view("<u4")
    rounded = tensor.bfloat16().view(torch.int16).numpy().view("<u2")
    quiet = (wide >> 16 & 0x8000 | 0x7FC0).astype("<u2")
    return np.where(np.isnan(tensor.numpy()), quiet, rounded)
