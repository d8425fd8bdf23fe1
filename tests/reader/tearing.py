"""Applies that fail half way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from deltastore.kernels.rows import StagedBits
from deltastore.reader.host import HostTargets
from tests.doubles.partial import up_to_the_middle_of
from tests.doubles.training import Engine, Trainer

Scatter = Callable[..., None]


@contextmanager
def failing_scatter(monkeypatch: pytest.MonkeyPatch, after: int, error: BaseException) -> Iterator[None]:
    """Make the first apply of at least ``after`` chunks fail when half of that one is written."""
    real: Scatter = HostTargets.scatter
    failed = False

    def scatter(self: HostTargets, new: StagedBits) -> None:
        nonlocal failed
        part = None if failed else up_to_the_middle_of(self.pieces.table, new, after)
        if part is not None:
            failed = True
            real(self, part)
            raise error
        real(self, new)

    with monkeypatch.context() as patch:
        patch.setattr(HostTargets, "scatter", scatter)
        yield


async def ready(trainer: Trainer, **options: Any) -> Engine:
    """An engine at the newest version; afterwards the trainer publishes one more."""
    engine = await Engine.start(trainer.store, trainer.model, **options)
    await engine.reader.sync()
    await trainer.step(60)
    return engine
