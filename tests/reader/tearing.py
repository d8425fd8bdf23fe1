"""Applies that fail half way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from deltastore.reader.targets import Targets
from tests.doubles.training import Engine, Trainer

Scatter = Callable[..., None]


@contextmanager
def failing_scatter(monkeypatch: pytest.MonkeyPatch, after: int, error: BaseException) -> Iterator[None]:
    """Make the ``after``-th patch of an apply fail when half of it is written."""
    real: Scatter = Targets.scatter
    calls = 0

    def scatter(self: Targets, array: int, box: Any, positions: Any, new: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == after:
            half = len(positions) // 2
            real(self, array, box, positions[:half], new[:half])
            raise error
        real(self, array, box, positions, new)

    with monkeypatch.context() as patch:
        patch.setattr(Targets, "scatter", scatter)
        yield


async def ready(trainer: Trainer, **options: Any) -> Engine:
    """An engine at the newest version; afterwards the trainer publishes one more."""
    engine = await Engine.start(trainer.store, trainer.model, **options)
    await engine.reader.sync()
    await trainer.step(60)
    return engine
