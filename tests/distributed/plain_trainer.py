"""One of four processes that train a model and share nothing but the store; F32 masters in NumPy."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from deltastore.stream import AsyncStream

from .sharding import PROCESSES, SHAPES, parts, slices

__all__ = ["STEPS", "Place", "masters", "step", "train"]

STEPS = 10
PATIENCE_SECONDS = 60.0

Masters = dict[str, np.ndarray[Any, np.dtype[np.float32]]]


@dataclass(frozen=True)
class Place:
    """Where one of the processes works, and as whom."""

    url: str
    run: str
    rank: int
    environment: Mapping[str, str]


def masters() -> Masters:
    """The whole model before the first step."""
    random = np.random.default_rng(5)
    return {name: random.standard_normal(shape, np.float32).reshape(shape) for name, shape in SHAPES.items()}


def step(whole: Masters, number: int) -> None:
    """One step, in place: about as much as an optimizer moves the weights, and some special values."""
    random = np.random.default_rng(number)
    for tensor in whole.values():
        tensor *= np.float32(1) + random.standard_normal(tensor.shape, np.float32) * np.float32(0.002)
        tensor.reshape(-1)[number % tensor.size] = (np.inf, -0.0, np.nan, 1e-42, -np.inf)[number % 5]


def train(place: Place, parent: Connection) -> None:
    """Tell the parent the versions that were published."""
    os.environ.update(place.environment)
    parent.send(asyncio.run(_train(place)))


async def _train(place: Place) -> list[int]:
    whole = masters()
    held = {name: view.copy() for name, view in slices(whole, place.rank).items()}
    async with await AsyncStream.open(place.url) as stream:
        writer = await stream.writer(
            parts(held, place.rank),
            cast=True,
            rank=place.rank,
            writers=PROCESSES,
            run=place.run,
            timeout=PATIENCE_SECONDS,
        )
        versions = []
        for number in range(1, STEPS + 1):
            step(whole, number)
            for name, view in slices(whole, place.rank).items():
                held[name][...] = view
            versions.append((await writer.publish(step=number)).version)
    return versions
