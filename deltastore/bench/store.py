"""``deltastore bench store``: what publishing and following cost beside the plain requests of the same store.

Everything is measured in one process against one store, so a ratio means something on a noisy machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final

from deltastore.bench.clients import compare_clients
from deltastore.bench.figure import Figure
from deltastore.bench.noise import Noise
from deltastore.bench.place import own_place
from deltastore.bench.publish_memory import measure_memory
from deltastore.bench.puts import put_all
from deltastore.bench.recording import RecordingStore, Request, longest_chain
from deltastore.reader.following import AsyncReader
from deltastore.stores.local import LocalStore
from deltastore.stores.memory import MemoryStore
from deltastore.stores.open import open_store
from deltastore.stream import AsyncStream
from deltastore.writer.packing import PACK_TARGET_BYTES, UPLOADS
from deltastore.writer.publishing import AsyncWriter

__all__ = ["StorePlan", "measure_store"]

_POLLS: Final = 20
_PACKS: Final = "packs/"


@dataclass(frozen=True, slots=True)
class StorePlan:
    """What to measure with: bytes of the large delta and of a pack, packs put at once, and how often."""

    nbytes: int = 200_000_000
    pack_bytes: int = PACK_TARGET_BYTES
    uploads: int = UPLOADS
    repeats: int = 3


async def measure_store(url: str, plan: StorePlan) -> AsyncGenerator[Figure, None]:
    """Measure the store at ``url``, in a place of its own there that is empty again at the end.

    Figures come as they are found. In memory, what a publish takes is not measured: the store itself is
    memory. Raises ``InputError`` and what the store raises.
    """
    async with own_place(url, "bench") as place:
        for figure in await _streaming(place, plan):
            yield figure
        if not place.startswith("memory://"):
            for figure in await measure_memory(place, plan.nbytes, plan.pack_bytes, plan.uploads):
                yield figure
        packs = [plan.pack_bytes] * max(plan.nbytes // plan.pack_bytes, 1)
        for figure in await compare_clients(place, packs, plan.uploads, plan.repeats):
            yield figure


async def _streaming(place: str, plan: StorePlan) -> list[Figure]:
    model = Noise(plan.nbytes)
    async with RecordingStore(open_store(place)) as store:
        stream = await AsyncStream.create(store, model.tensors)
        writer = await stream.writer(model.tensors, pack_bytes=plan.pack_bytes, uploads=plan.uploads)
        reader = await stream.reader(model.copy())
        return [
            await _commit(store, writer, model),
            *await _uploads(store, writer, model, plan),
            *await _polls(store, reader),
        ]


async def _commit(store: RecordingStore, writer: AsyncWriter, model: Noise) -> Figure:
    """How often a publish waits for the store, but for its packs."""
    model.change_little()
    store.requests.clear()
    await writer.publish()
    others = [request for request in store.requests if not _is_pack(request)]
    return Figure("commit, without its packs", longest_chain(others), "requests", target=3, at_most=True)


async def _uploads(store: RecordingStore, writer: AsyncWriter, model: Noise, plan: StorePlan) -> list[Figure]:
    """A delta of several packs beside plain puts of as many bytes, in turns."""
    publishing, uploading, putting = [], [], []
    sizes: list[int] = []
    for _ in range(plan.repeats):
        model.change_all()
        store.requests.clear()
        publishing.append((await writer.publish()).seconds)
        packs = [request for request in store.requests if _is_pack(request)]
        sizes = [request.nbytes for request in packs]
        uploading.append(_window(packs))
        putting.append(await put_all(store, sizes, plan.uploads))
    total, plain = sum(sizes), min(putting)
    found = [Figure(f"plain puts of {len(sizes)} packs", total / plain / 1e6, "MB/s")]
    # Memory, and the cache of a disk, take packs faster than they can be made.
    wanted = None if isinstance(store.inner, MemoryStore | LocalStore) else 0.8
    for name, seconds, target in (("publish", publishing, None), ("its uploads", uploading, wanted)):
        best = min(seconds)
        found.append(Figure(name, total / best / 1e6, "MB/s", plain / best, "plain puts", target))
    return found


async def _polls(store: RecordingStore, reader: AsyncReader) -> list[Figure]:
    """A poll that finds nothing new."""
    await reader.sync()
    store.requests.clear()
    seconds = []
    for _ in range(_POLLS):
        began = time.perf_counter()
        await reader.poll()
        seconds.append(time.perf_counter() - began)
    return [
        Figure("poll, nothing new", len(store.requests) / _POLLS, "requests", target=1, at_most=True),
        Figure("poll, nothing new", statistics.median(seconds) * 1000, "ms"),
    ]


def _is_pack(request: Request) -> bool:
    return request.operation == "put" and request.key.startswith(_PACKS)


def _window(requests: Sequence[Request]) -> float:
    """Seconds from the beginning of the first request to the end of the last."""
    return max(request.ended for request in requests) - min(request.began for request in requests)
