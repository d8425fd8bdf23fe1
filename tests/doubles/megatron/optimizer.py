"""Wrappers around optimizers of torch: FP32 shards that ignore where parameters end, and a chain of such."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .buffer import FlatBuffer, ValueOf

__all__ = ["ChainedOptimizer", "FlatOptimizer"]

Make = Callable[[list[dict[str, Any]]], Any]
DECAYS = {True: 0.1, False: 0.0}


class FlatOptimizer:
    """The distributed optimizer of one buffer: ``shards`` are the FP32 masters of what this rank owns.

    ``optimizer`` is made over the model's parameters, as Megatron does, and then given the shards.
    """

    def __init__(self, buffer: FlatBuffer, make: Make) -> None:
        self.buffer = buffer
        self.owned = buffer.owned
        self.shards = [self._weights(number).clone().float() for number in range(len(self.owned))]
        self.optimizer = make(
            [
                {
                    "params": [
                        buffer.weights_of(at)
                        for at, param in enumerate(buffer.params)
                        if param.decays == decays
                    ],
                    "weight_decay": decay,
                }
                for decays, decay in DECAYS.items()
            ]
        )
        for group, decays in zip(self.optimizer.param_groups, DECAYS, strict=True):
            group["params"] = [
                shard
                for shard, owned in zip(self.shards, self.owned, strict=True)
                if buffer.params[owned.number].decays == decays
            ]
        self.optimizer.load_state_dict(self.optimizer.state_dict())

    def _weights(self, number: int) -> torch.Tensor:
        owned = self.owned[number]
        return self.buffer.weights[owned.at : owned.at + owned.end - owned.first]

    def step(self, gradient_of: ValueOf, *, overflow: bool = False) -> bool:
        """Reduce gradients, step, and bring BF16 weights to all ranks; whether that was done."""
        self.buffer.reduce(gradient_of)
        if overflow:
            return False
        for owned, shard in zip(self.owned, self.shards, strict=True):
            shard.grad = self.buffer.gradients[owned.at : owned.at + owned.end - owned.first]
        self.optimizer.step()
        for number, shard in enumerate(self.shards):
            self._weights(number).copy_(shard)
        self.buffer.gather()
        return True

    def move_state(self) -> None:
        """Offload the optimizer's state and bring it back: the same values in other memory."""
        for state in self.optimizer.state.values():
            for name, value in state.items():
                if isinstance(value, torch.Tensor):
                    state[name] = value.clone()


class ChainedOptimizer:
    """Several that step as one."""

    def __init__(self, optimizers: Sequence[FlatOptimizer]) -> None:
        self.chained_optimizers = list(optimizers)
