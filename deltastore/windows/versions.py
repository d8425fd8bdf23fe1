"""The chunks of one version, from its anchor and the deltas on its path, in bounded memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import numpy as np

from deltastore.errors import CorruptError
from deltastore.format.pack import PackIndex
from deltastore.format.records import DeltaRecord
from deltastore.format.table import TensorTable
from deltastore.kernels.rows import ChunkList
from deltastore.replay import Path
from deltastore.stores.base import Store
from deltastore.windows.course import course_of
from deltastore.windows.opening import WINDOW_BYTES, open_walk
from deltastore.windows.walk import Walk, Watch

__all__ = ["chunks_at", "open_path"]

Bits = np.ndarray[Any, Any]


class _Known:
    """Deltas whose records are at hand. What is wrong with their packs is raised."""

    def __init__(self, records: Sequence[DeltaRecord]) -> None:
        self._records = records

    async def record(self, step: int) -> DeltaRecord | None:
        """The manifest of a step."""
        return self._records[step]

    def indexed(self, step: int, index: PackIndex) -> None:
        """Nothing more."""

    def lost(self, step: int, error: CorruptError) -> None:  # noqa: ARG002
        """The path cannot be walked."""
        raise error


async def open_path(
    store: Store,
    table: TensorTable,
    path: Path,
    *,
    chunks: ChunkList | None = None,
    nbytes: int = WINDOW_BYTES,
) -> Walk:
    """A walk along ``path``, which starts at an anchor: step n is ``path.deltas[n]``. ``close`` it.

    ``chunks``: those wanted; None: all. The weights of the version reached stand in buffer 0.
    """
    if path.anchor is None:
        raise ValueError("a path that starts at no anchor")
    bases = {record.version: record.base for record in path.deltas}
    course = course_of(path.anchor.version, bases, keep=True)
    return await open_walk(
        store, table, path.anchor, course, _Known(path.deltas), chunks=chunks, nbytes=nbytes
    )


async def chunks_at(
    store: Store, table: TensorTable, path: Path, *, chunks: ChunkList | None = None
) -> AsyncGenerator[tuple[int, int, Bits], None]:
    """(array, chunk, bits) of the version at the end of ``path``, ascending; ``chunks``: only those.

    Memory: one window, and what the walk takes. Raises ``CorruptError`` for any wrong byte. Close it.
    """
    walk = await open_path(store, table, path, chunks=chunks)
    try:
        for number in range(len(walk.windows)):
            buffers = await walk.over(number, Watch())
            for (array, chunk), bits in buffers[0].chunks.items():
                yield array, chunk, bits
    finally:
        walk.close()
