"""What the tests of the store in a folder share."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltastore.stores.local import LocalStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that does not exist yet."""
    return tmp_path / "the root"


@pytest.fixture
def local(root: Path) -> LocalStore:
    """The store in that folder."""
    return LocalStore(root)
