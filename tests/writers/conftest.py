"""What tests in virtual time need: nothing that another thread does."""

from __future__ import annotations

import random
from typing import Self

import pytest

from deltastore.anchors import writing
from deltastore.anchors.encoding import ShardEncoder
from deltastore.anchors.sharding import ShardGrid
from deltastore.anchors.zarr_metadata import array_metadata
from deltastore.format.table import Array
from deltastore.layout.weights import Bits


class BlockingEncoder(ShardEncoder):
    """Waits for tensorstore's threads instead of letting other tasks, and the clock, run meanwhile."""

    @classmethod
    async def open(cls, array: Array, shards: ShardGrid) -> Self:
        import tensorstore

        memory = {"driver": "memory"}
        spec = {
            "driver": "zarr3",
            "kvstore": memory,
            "metadata": array_metadata(array, shards),
            "open": True,
            "assume_metadata": True,
            "store_data_equal_to_fill_value": True,
        }
        context = tensorstore.Context()
        objects = tensorstore.KvStore.open(memory, context=context).result()
        return cls(shards, tensorstore.open(spec, context=context).result(), objects)

    async def encode(self, shard: int, bits: Bits) -> bytes:
        region = self._store[self._shards.box(shard).slices]
        region.write(bits.view(self._element)).result()
        return bytes(self._objects.read(self._shards.key(shard)).result().value)


@pytest.fixture(autouse=True)
def same_pauses() -> None:
    """Jitter is the same in every run."""
    random.seed(7)


@pytest.fixture(autouse=True)
def blocking_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anchors are encoded in one step."""
    monkeypatch.setattr(writing, "ShardEncoder", BlockingEncoder)
