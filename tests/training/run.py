"""A training run that publishes by inversion, and beside it a copy of every bit that engines must have."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch

from deltastore.format.records import Certificate
from deltastore.reader.following import AsyncReader
from deltastore.stream import AsyncStream
from deltastore.writer.publishing import AsyncWriter
from tests.doubles.stores import memory_store
from tests.training.models import MODELS, VOCABULARY

__all__ = ["LR", "Run", "Told", "rate"]

LR = 1e-3
_WARM_UP = 20
_STEPS = 100


def rate(step: int) -> float:
    """A warm-up, then half a cosine."""
    if step < _WARM_UP:
        return LR * (step + 1) / _WARM_UP
    return LR * 0.5 * (1 + math.cos(math.pi * (step - _WARM_UP) / (_STEPS - _WARM_UP)))


@dataclass(frozen=True, slots=True)
class Told:
    """A version: ``changed`` elements did change, ``sent`` were written, ``nbytes`` uploaded."""

    changed: int
    sent: int
    nbytes: int
    certificate: Certificate


class Run:
    """One model, its optimizer and writer, and an engine that follows."""

    def __init__(self, kind: str, **options: Any) -> None:
        torch.set_num_threads(1)  # tensors of this size are done before another thread has woken up
        self.model = MODELS[kind]()
        self.weights: dict[str, Any] = self.model.state_dict(keep_vars=True)
        params = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(
            [
                {"params": [param for param in params if param.ndim > 1], "weight_decay": 0.1},
                {"params": [param for param in params if param.ndim < 2], "weight_decay": 0.0},
            ],
            lr=LR,
            betas=(0.9, 0.95),
            **options,
        )
        self.random = torch.Generator().manual_seed(3)
        self.taken = 0
        self.published = self.bits()

    @classmethod
    async def start(cls, kind: str, **options: Any) -> Self:
        """A new stream in memory; version 0 is the model before its first step."""
        run = cls(kind, **options)
        store = memory_store()
        run.stream = await AsyncStream.create(store, run.weights, cast="BF16")
        run.writer = await run.stream.writer(run.weights, cast=True, optimizer=run.optimizer, threads=1)
        run.engine = {
            name: torch.zeros(param.shape, dtype=torch.bfloat16) for name, param in run.weights.items()
        }
        run.reader = await run.stream.reader(run.engine)
        await run.reader.sync()
        run.check()
        return run

    stream: AsyncStream
    writer: AsyncWriter
    reader: AsyncReader
    engine: dict[str, torch.Tensor]

    def bits(self) -> dict[str, np.ndarray[Any, Any]]:
        """What is to be published now: a copy."""
        return {name: _bits(param.detach().bfloat16()).copy() for name, param in self.weights.items()}

    def backward(self, scaler: Any = None) -> None:
        """Gradients of one batch, clipped or scaled; the rate is the schedule's."""
        tokens = torch.randint(1, VOCABULARY, (2, 12), generator=self.random)
        self.optimizer.zero_grad()
        loss = self.model(input_ids=tokens, labels=tokens).loss
        if scaler is None:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        else:
            scaler.scale(loss).backward()
        for group in self.optimizer.param_groups:
            group["lr"] = rate(self.taken)

    def step(self, count: int = 1) -> None:
        """Steps of the optimizer."""
        for _ in range(count):
            self.backward()
            self.optimizer.step()
            self.taken += 1

    async def publish(self) -> Told:
        """A version, compared with the copy; the engine has it when this returns."""
        now = self.bits()
        changed = sum(int((now[name] != before).sum()) for name, before in self.published.items())
        version = await self.writer.publish(step=self.taken)
        assert version.kind == "delta"
        assert version.certificate is not None
        await self.reader.sync()
        self.published = now
        self.check()
        assert changed <= version.changed
        return Told(changed, version.changed, version.nbytes, version.certificate)

    def check(self) -> None:
        """The engine has every bit of what was published last."""
        held = {name: _bits(self.engine[name]).tobytes() for name in self.published}
        assert [name for name, bits in self.published.items() if held[name] != bits.tobytes()] == []

    async def close(self) -> None:
        """The writer, and all that was opened."""
        await self.writer.close()
        await self.stream.close()


def _bits(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    bits: np.ndarray[Any, Any] = tensor.view(torch.int16).numpy()
    return bits
