"""A small model of every kind of tensor, and the optimizers that move it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch

from deltastore.layout.live import LiveWeights
from deltastore.layout.live_parts import LiveParts
from tests.doubles.models import bf16, cut_table

__all__ = ["Trainer", "live_of", "step"]

Edit = Callable[[torch.Tensor], torch.Tensor]

WIDE = (3, 900)
"""Longer rows than some chunk limits: their columns are cut."""


def live_of(tensors: Mapping[str, Any], limit: int = 1 << 21, *, keep: Iterable[str] = ()) -> LiveParts:
    """FP32 tensors published as BF16, but those of ``keep`` as they are; chunks of ``limit`` elements."""
    shown = {name: _published(tensor, name in set(keep)) for name, tensor in tensors.items()}
    return LiveWeights(cut_table(shown, limit), tensors, cast=True).parts


def _published(tensor: torch.Tensor, as_is: bool) -> np.ndarray[Any, Any]:
    shape = tuple(tensor.shape)
    if tensor.dtype == torch.bfloat16 or (tensor.dtype == torch.float32 and not as_is):
        return bf16(np.zeros(shape))
    return np.zeros(shape, str(tensor.dtype).removeprefix("torch."))


def step(optimizers: Iterable[Any], random: torch.Generator, *, scale: float = 1.0, skip: int = 0) -> None:
    """One step of each with fresh gradients; of every ``skip`` parameters one has none."""
    for optimizer in optimizers:
        params = [param for group in optimizer.param_groups for param in group["params"]]
        for number, param in enumerate(params):
            none = not param.requires_grad or (skip and number % skip == 0)
            drawn = torch.randn(param.shape, generator=random, dtype=torch.float32)
            param.grad = None if none else (drawn * scale).to(param.dtype)
        optimizer.step()


class Trainer:
    """Tensors by name, and two optimizers over some of them.

    ``first`` moves stacked layers, a norm without decay and a tensor of long rows; ``second`` a head that has
    two names, an FP32 router that is published as it is, and a BF16 tensor. Nobody moves the rest.
    """

    def __init__(self, seed: int, kind: str = "foreach") -> None:
        torch.set_num_threads(1)  # tensors of this size are done before another thread has woken up
        self.random = torch.Generator().manual_seed(seed)
        layers = [self._parameter(96, 50) for _ in range(2)]
        norm, wide, head, router = (self._parameter(*shape) for shape in ((33,), WIDE, (40, 64), (8, 16)))
        half = torch.nn.Parameter(self._drawn(30, 40).bfloat16())
        frozen = torch.nn.Parameter(self._drawn(50, 20), requires_grad=False)
        self.tensors: dict[str, Any] = {
            "layers.0.weight": layers[0],
            "layers.1.weight": layers[1],
            "norm": norm,
            "wide": wide,
            "head": head,
            "alias": head,
            "router": router,
            "half": half,
            "frozen": frozen,
            "steps": torch.arange(5, dtype=torch.int64),
            "scale": self._parameter(),
        }
        options: dict[str, Any] = {"fused": {"fused": True}, "foreach": {"foreach": True}}.get(kind, {})
        self.first = torch.optim.AdamW(
            [
                {"params": [*layers, wide, frozen], "weight_decay": 0.1},
                {"params": [norm, self.tensors["scale"]], "weight_decay": 0.0, "lr": 3e-4},
            ],
            lr=1e-4,
            **options,
        )
        self.second = torch.optim.Adam([head, router, half], lr=2e-4, amsgrad=kind == "single", **options)

    def live(self, limit: int) -> LiveParts:
        """As a detector is given it."""
        return live_of(self.tensors, limit, keep=["router"])

    def _drawn(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.random) * 0.02

    def _parameter(self, *shape: int) -> torch.nn.Parameter:
        return torch.nn.Parameter(self._drawn(*shape))

    def optimizers(self, which: str) -> list[Any]:
        """``first``, ``second`` or ``both``."""
        both: list[Any] = [self.first, self.second]
        return {"first": both[:1], "second": both[1:]}.get(which, both)

    def moments(self) -> list[torch.Tensor]:
        """All there are."""
        states = [*self.first.state.values(), *self.second.state.values()]
        return [state[key] for state in states for key in ("exp_avg", "exp_avg_sq") if key in state]

    def edit(
        self, tensors: list[torch.Tensor], by: Callable[[torch.Tensor], torch.Tensor], count: int
    ) -> None:
        """Change ``count`` elements behind everybody's back."""
        with torch.no_grad():
            for _ in range(count):
                tensor = tensors[int(torch.randint(len(tensors), (), generator=self.random))]
                flat = tensor.detach().view(-1)
                at = int(torch.randint(len(flat), (), generator=self.random))
                flat[at] = by(flat[at])

    def reload(self) -> None:
        """Other weights, as from a checkpoint: whatever went wrong before, they are numbers again."""
        with torch.no_grad():
            for tensor in self.tensors.values():
                if tensor.is_floating_point():
                    tensor.copy_(self._drawn(*tensor.shape))
