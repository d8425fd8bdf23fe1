"""A trainer whose detector is watched, and its steps."""

from __future__ import annotations

import torch

from deltastore.detect.inverse import AdamWInverse
from tests.detect.oracle import Oracle
from tests.detect.trainers import Trainer, step

__all__ = ["BLOCK", "layer", "train", "watched"]

BLOCK = 2048
"""Elements of a block of the certificate."""


def watched(trainer: Trainer, limit: int = 1 << 21, threads: int = 1) -> Oracle:
    """A detector with both optimizers attached."""
    live = trainer.live(limit)
    detector = AdamWInverse(live, threads=threads)
    detector.attach([trainer.first, trainer.second])
    return Oracle(live, detector)


def train(trainer: Trainer, count: int = 1, *, skip: int = 0) -> None:
    for _ in range(count):
        step([trainer.first, trainer.second], trainer.random, skip=skip)


def layer(trainer: Trainer, number: int = 0) -> torch.Tensor:
    """The elements of a layer in a row, to be written to."""
    weight: torch.Tensor = trainer.tensors[f"layers.{number}.weight"]
    return weight.detach().view(-1)
