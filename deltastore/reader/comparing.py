"""Comparing live memory with a version that is stored whole, without writing: is the layout the right one?"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

import numpy as np

from deltastore.anchors.portion import AnchorPortion
from deltastore.layout.live_shard import LiveShard
from deltastore.layout.weights import chunks_of
from deltastore.reader.loading import Loader, Opened

__all__ = ["differing"]

Bits = np.ndarray[Any, Any]


async def differing(loader: Loader, opened: Opened) -> tuple[str, ...]:
    """The parameters, or without a layout the tensors, that hold other bits than an anchor; sorted.

    Of elements that are held twice each copy counts, of widened ones the lower halves too. Fetches what
    loading the anchor would. Memory: what that takes, and a chunk.
    """
    shard = loader.targets.shard
    found = set() if shard is None else set(shard.astray())
    async with aclosing(_chunks(loader, opened)) as chunks:
        async for array, chunk, bits in chunks:
            found.update(_names_apart(loader, array, chunk, bits))
    return tuple(sorted(found))


async def _chunks(loader: Loader, opened: Opened) -> AsyncGenerator[tuple[int, int, Bits], None]:
    """Chunks of which something is held, as the anchor has them."""
    if isinstance(opened, AnchorPortion):
        async with aclosing(loader.parts(opened)) as parts:
            async for part in parts:
                for one in part.fetched.chunks:
                    yield one
        return
    try:
        async for array, chunk, _, bits in chunks_of(opened):
            yield array, chunk, bits
    finally:
        await opened.close()


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
