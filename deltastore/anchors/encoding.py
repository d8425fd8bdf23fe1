"""Encoding shards with tensorstore, one at a time, in memory of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from deltastore.anchors.sharding import ShardGrid
from deltastore.anchors.zarr_metadata import array_metadata
from deltastore.errors import StoreError
from deltastore.format.table import Array
from deltastore.layout.weights import Bits

if TYPE_CHECKING:
    import tensorstore

__all__ = ["ShardEncoder"]


class ShardEncoder:
    """The shards of one array as the objects that Zarr stores. Memory: one encoded shard.

    Each encoder has its own tensorstore context, so nothing is shared or left behind. tensorstore starts
    threads, and does not survive a fork: processes that encode are spawned.
    """

    def __init__(
        self, shards: ShardGrid, store: tensorstore.TensorStore, objects: tensorstore.KvStore
    ) -> None:
        self._shards = shards
        self._store = store
        self._objects = objects
        self._element = store.dtype.numpy_dtype

    @classmethod
    async def open(cls, array: Array, shards: ShardGrid) -> Self:
        """An encoder that produces exactly what :func:`array_metadata` describes."""
        import tensorstore

        memory = {"driver": "memory"}
        spec = {
            "driver": "zarr3",
            "kvstore": memory,
            "metadata": array_metadata(array, shards),
            "open": True,
            "assume_metadata": True,
            # Else a chunk of zeros would be left out, and one of -0.0 with it where zeros are compared.
            "store_data_equal_to_fill_value": True,
        }
        context = tensorstore.Context()
        objects = await tensorstore.KvStore.open(memory, context=context)
        return cls(shards, await tensorstore.open(spec, context=context), objects)

    async def encode(self, shard: int, bits: Bits) -> bytes:
        """The object of a shard. ``bits``: its elements inside the array, unsigned; they may not change."""
        region = self._store[self._shards.box(shard).slices]
        await region.write(bits.view(self._element), can_reference_source_data_indefinitely=True)
        key = self._shards.key(shard)
        encoded = (await self._objects.read(key)).value
        await self._objects.write(key, None)
        if not encoded:
            raise StoreError("store_failed", f"tensorstore encoded nothing for shard {key}; report this")
        return bytes(encoded)
