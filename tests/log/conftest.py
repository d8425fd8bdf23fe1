"""What the tests of the log share."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltastore.stores.base import Store
from deltastore.stores.local import LocalStore
from tests.doubles.stores import memory_store


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of each kind."""
    return LocalStore(tmp_path / "store") if request.param == "file" else memory_store()
