"""What the tests of the reader share."""

from __future__ import annotations

import pytest

from tests.doubles.models import small_model
from tests.doubles.stores import WatchedStore, memory_store
from tests.doubles.training import Trainer
from tests.reader.shards import fetch_by_ranges


@pytest.fixture
def store() -> WatchedStore:
    """An empty store in memory, watched."""
    return WatchedStore(memory_store())


@pytest.fixture
async def trainer(store: WatchedStore) -> Trainer:
    """A stream of a mixed model with versions 0 and 1; every changed chunk is a pack of its own."""
    trainer = await Trainer.create(store, small_model())
    await trainer.step(25)
    return trainer


@pytest.fixture
def by_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small objects are read in ranges as large ones are."""
    fetch_by_ranges(monkeypatch)
