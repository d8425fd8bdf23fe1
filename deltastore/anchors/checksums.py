"""Checking the CRC-32C behind a chunk or an index, with tensorstore, whose codec it is (SPEC DS073)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

if TYPE_CHECKING:
    import tensorstore

__all__ = ["ChecksummedForm"]

Bits = np.ndarray[Any, Any]

_KEY: Final = "c/0"


class ChecksummedForm:
    """Runs of ``count`` unsigned integers of ``itemsize`` bytes, little-endian, each with its CRC-32C behind.

    Memory: one run, while it is decoded. Tasks may share a form; they take turns.
    """

    def __init__(self, nbytes: int, store: tensorstore.TensorStore, objects: tensorstore.KvStore) -> None:
        self._nbytes = nbytes
        self._store = store
        self._objects = objects
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, count: int, itemsize: int) -> Self:
        """A form; ``count`` is 1 or more."""
        import tensorstore

        octets: dict[str, Any] = {"name": "bytes"}
        if itemsize > 1:
            octets["configuration"] = {"endian": "little"}
        metadata = {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [count],
            "data_type": f"uint{itemsize * 8}",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [count]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": 0,
            "codecs": [octets, {"name": "crc32c"}],
        }
        memory = {"driver": "memory"}
        spec = {
            "driver": "zarr3",
            "kvstore": memory,
            "metadata": metadata,
            "open": True,
            "assume_metadata": True,
        }
        context = tensorstore.Context()
        objects = await tensorstore.KvStore.open(memory, context=context)
        store = await tensorstore.open(spec, context=context)
        return cls(count * itemsize + 4, store, objects)

    async def decode(self, data: bytes) -> Bits | None:
        """The integers ``(count,)``, or None where ``data`` is not exactly that long, or its CRC is wrong."""
        if len(data) != self._nbytes:  # tensorstore takes no notice of what follows
            return None
        async with self._turn:
            await self._objects.write(_KEY, data)
            try:
                decoded: Bits = await self._store.read()
            except ValueError:
                return None
            finally:
                await self._objects.write(_KEY, None)
        return decoded
