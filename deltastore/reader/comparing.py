"""Comparing live memory with a version, without writing: is the layout the right one?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import numpy as np

from deltastore.layout.live_shard import LiveShard
from deltastore.reader.loading import Loader
from deltastore.replay import Path
from deltastore.windows.versions import chunks_at

__all__ = ["differing"]

Bits = np.ndarray[Any, Any]


async def differing(loader: Loader, path: Path) -> tuple[str, ...]:
    """The parameters, or without a layout the tensors, that hold other bits than a version; sorted.

    ``path`` starts at an anchor. Of elements that are held twice each copy counts, of widened ones the lower
    halves too. Fetches what loading the version would. Memory: a window of chunks, and what fetching it
    takes.
    """
    shard, needed = loader.targets.shard, loader.needed
    found = set() if shard is None else set(shard.astray())
    chosen = None if needed is None else needed.chunks
    async with aclosing(chunks_at(loader.store, loader.table, path, chunks=chosen)) as chunks:
        async for array, chunk, bits in chunks:
            found.update(_names_apart(loader, array, chunk, bits))
    return tuple(sorted(found))


def _names_apart(loader: Loader, array: int, chunk: int, bits: Bits) -> Iterator[str]:
    form = loader.table.arrays[array]
    box = form.grid.box(chunk)
    weights = loader.targets.weights
    if isinstance(weights, LiveShard):
        yield from weights.params_apart(array, box, bits)
        return
    live = weights.read_box(array, box)
    for offset in range(box.size[0]):
        if not np.array_equal(live[offset], bits[offset]):
            yield form.names[box.start[0] + offset]
