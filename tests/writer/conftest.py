"""What the tests of the writer share."""

from __future__ import annotations

import pytest

from tests.doubles.models import tiny_model
from tests.doubles.stores import WatchedStore, memory_store
from tests.doubles.training import Trainer


@pytest.fixture
def store() -> WatchedStore:
    """An empty store in memory, watched."""
    return WatchedStore(memory_store())


@pytest.fixture
async def trainer(store: WatchedStore) -> Trainer:
    """A stream with version 0 and its writer."""
    return await Trainer.create(store, tiny_model())
