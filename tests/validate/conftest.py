"""What the tests of forged streams share."""

from __future__ import annotations

import pytest

from deltastore.validate.live import comparing
from tests.doubles.models import cut_table, tiny_model
from tests.doubles.stores import memory_store
from tests.doubles.training import Trainer


@pytest.fixture
async def trainer() -> Trainer:
    """Versions 0 (anchor) to 4 (deltas) in slots 2 and 4 to 7; birth and epochs in slots 0, 1 and 3."""
    model = tiny_model()
    trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 8))
    for _ in range(4):
        await trainer.step(30)
    return trainer


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several windows for a model of a few hundred bytes."""
    monkeypatch.setattr(comparing, "WINDOW_BYTES", 600)
