"""What the ranks of a sharded fleet fetch of one delta, counted at the store, and how fast one applies it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from deltastore.bench.figure import Figure
from deltastore.bench.place import own_place
from deltastore.bench.recording import RecordingStore
from deltastore.bench.shards.kept import KeptStore
from deltastore.bench.shards.models import ShardsPlan, change_some, zeros
from deltastore.format.records import DeltaRecord
from deltastore.format.table import TensorTable
from deltastore.kernels.cpu import resolve, scatter
from deltastore.kernels.pieces import Pieces
from deltastore.kernels.rows import ROW
from deltastore.layout.engines.vllm import vllm
from deltastore.layout.live import LiveWeights
from deltastore.layout.live_shard import LiveShard
from deltastore.layout.pieces import Layout
from deltastore.layout.slabs import slab_table
from deltastore.reader.fetching import fetch_patches
from deltastore.reader.needed import Needed
from deltastore.reader.opening import open_reader
from deltastore.stores.base import Store
from deltastore.stores.open import open_store
from deltastore.stream import AsyncStream
from deltastore.writer.whole import create_stream

__all__ = ["measure_shards"]

_MOST_FETCHED: Final = 1.03
_MOST_REQUESTS: Final = 4
_LEAST_SPEED: Final = 0.7


async def measure_shards(url: str, plan: ShardsPlan) -> AsyncGenerator[Figure, None]:
    """Publish one delta to a place of its own at ``url``, and let every rank of an engine follow.

    Bytes and requests are those that a reader of every rank asked the store for. The version before, and what
    else is read here, comes from memory. A rank's *share* is that of the elements that it holds in every
    patch that it needs, and the index rows of these patches.
    """
    tensors = zeros(plan.model)
    table = slab_table(plan.model, list(plan.model.tensors()), slabs=plan.slabs, moe=plan.moe)
    async with own_place(url, "shards") as place, RecordingStore(open_store(place)) as asked:
        store = KeptStore(asked)
        await create_stream(store, LiveWeights(table, tensors))
        async with AsyncStream(store) as stream:
            record = await _publish(stream, tensors, plan)
            async for figure in _ranks(asked, store, table, record, plan):
                yield figure
            yield await _speed(store, table, record, plan, tensors)


async def _publish(stream: AsyncStream, tensors: dict[str, Any], plan: ShardsPlan) -> DeltaRecord:
    writer = await stream.writer(tensors, detector="external")
    writer.mark(change_some(tensors, plan.density, plan.seed))
    await writer.publish()
    await writer.close()
    record = await stream.newest()
    if not isinstance(record, DeltaRecord):
        raise TypeError("the second version is not a delta")
    return record


@dataclass(frozen=True, slots=True)
class _Fetched:
    """What the store gave one rank; ``most``: requests of one pack, at most."""

    nbytes: int
    requests: int
    most: int


async def _ranks(
    asked: RecordingStore, store: KeptStore, table: TensorTable, record: DeltaRecord, plan: ShardsPlan
) -> AsyncGenerator[Figure, None]:
    total = sum(pack.bytes for pack in record.packs)
    yield Figure("packs of the delta", len(record.packs), "")
    yield Figure("bytes of the delta", total / 1e6, "MB")
    all_bytes, all_shares, all_requests = 0, 0.0, 0
    for rank in range(plan.tp):
        layout = vllm(plan.config, tp=plan.tp, ep=plan.ep, rank=rank)
        params = _memory(layout)
        fetched = await _follow(asked, store, record, layout, params)
        share = await _share(store, record, LiveShard(table, layout, params))
        all_bytes, all_shares = all_bytes + fetched.nbytes, all_shares + share
        all_requests += fetched.requests
        ratio = fetched.nbytes / share
        nbytes = fetched.nbytes / 1e6
        yield Figure(f"rank {rank} fetched", nbytes, "MB", ratio, "its share", _MOST_FETCHED, at_most=True)
        yield Figure(f"rank {rank}, of a pack", fetched.most, "requests", target=_MOST_REQUESTS, at_most=True)
    yield Figure("all ranks fetched", all_bytes / 1e6, "MB", all_bytes / all_shares, "their shares")
    yield Figure("all ranks fetched", all_bytes / 1e6, "MB", all_bytes / total, "the delta")
    yield Figure("requests of all ranks", all_requests, "")


async def _follow(
    asked: RecordingStore, store: KeptStore, record: DeltaRecord, layout: Layout, params: dict[str, Any]
) -> _Fetched:
    """Bring one rank from the anchor to the delta; what the store was asked for then."""
    reader = await open_reader(store.measured(), params, layout=layout)
    await reader.sync(record.base)
    asked.requests.clear()
    await reader.sync(record.version)
    packs: dict[str, list[int]] = {}
    for request in asked.requests:
        if request.key.startswith("packs/"):
            packs.setdefault(request.key, []).append(request.nbytes)
    each = [len(sizes) for sizes in packs.values()]
    return _Fetched(sum(map(sum, packs.values())), sum(each), max(each, default=0))


async def _share(store: Store, record: DeltaRecord, shard: LiveShard) -> float:
    """Of every patch that a rank needs, the bytes for the elements that it holds, and its index row."""
    needed = Needed.by(shard.boxes)
    total = 0.0
    async for fetched in fetch_patches(store, shard.table, record, needed):
        rows = fetched.index.rows
        new, _ = resolve(shard.once, rows, fetched.body)
        held = np.diff(new.starts) / rows["count"]
        total += float((rows["length"] * held).sum()) + len(rows) * ROW.itemsize
    return total


async def _speed(
    store: Store, table: TensorTable, record: DeltaRecord, plan: ShardsPlan, tensors: dict[str, Any]
) -> Figure:
    """Elements a second that one rank applies, beside an engine that holds the whole model."""
    whole = LiveWeights(table, tensors).pieces
    layout = vllm(plan.config, tp=plan.tp, ep=plan.ep, rank=plan.tp // 2)
    shard = LiveShard(table, layout, _memory(layout))
    if whole is None or shard.pieces is None:
        raise TypeError("tensors that are not in the memory of the CPU")
    alone = await _applied(store, record, table, None, whole)
    part = await _applied(store, record, table, Needed.by(shard.boxes), shard.pieces)
    return Figure("apply by one rank", part / 1e6, "M el/s", part / alone, "an unsharded apply", _LEAST_SPEED)


async def _applied(
    store: Store, record: DeltaRecord, table: TensorTable, needed: Needed | None, pieces: Pieces
) -> float:
    """Elements a second that are worked out and written; of three runs over every pack, the best."""
    best = 0.0
    packs = [(one.index.rows, one.body) async for one in fetch_patches(store, table, record, needed)]
    for _ in range(3):
        elements, began = 0, time.perf_counter()
        for rows, body in packs:
            new, _ = resolve(pieces, rows, body)
            scatter(pieces, new)
            elements += len(new.positions)
        best = max(best, elements / (time.perf_counter() - began))
    return best


def _memory(layout: Layout) -> dict[str, Any]:
    """Every parameter as raw bits, all zero."""
    return {param.name: np.zeros(param.shape, param.dtype.storage) for param in layout.params}
