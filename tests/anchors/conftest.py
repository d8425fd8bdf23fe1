"""What the tests of anchors share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from deltastore.anchors import write_anchor, writing
from deltastore.anchors.sharding import plan_shards
from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec
from deltastore.stores.local import LocalStore
from deltastore.stores.memory import MEMORY_STORES, MemoryStore
from tests.anchors.damaged import Anchor
from tests.anchors.models import HeldWeights, cut_table


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    """An empty store in memory."""
    yield MemoryStore("memory://anchors-under-test")
    MEMORY_STORES.pop("anchors-under-test", None)


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    """An empty store in a folder, which other Zarr readers can open."""
    return LocalStore(tmp_path / "stream")


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of about 256 bytes, so that small models have many."""
    monkeypatch.setattr(writing, "plan_shards", lambda array: plan_shards(array, 256))


@pytest.fixture
async def anchor(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> Anchor:
    """An anchor of one array in three shards of two chunks each."""
    monkeypatch.setattr(writing, "plan_shards", lambda array: plan_shards(array, 128))
    bits = np.arange(3 * 8 * 8, dtype="<u2").reshape(3, 8, 8)
    tensors = {f"w.{member}": bits[member] for member in range(3)}
    specs = [TensorSpec(name, (8, 8), DTYPES["BF16"]) for name in tensors]
    weights = HeldWeights(cut_table(specs, 32), tensors)
    return Anchor(store, weights, await write_anchor(store, 1, weights))
