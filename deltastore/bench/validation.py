"""``deltastore bench validate``: how fast a stream is checked, beside reading it and hashing as many bytes.

Everything is measured in one process, in turns, so a ratio means something on a noisy machine; but memory is
that of a process of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from deltastore.anchors.in_order import in_order
from deltastore.bench.figure import Figure
from deltastore.bench.noise import Noise
from deltastore.bench.place import own_place
from deltastore.errors import NotFoundError, StoreError
from deltastore.kernels.threads import chosen_threads
from deltastore.log import Log
from deltastore.stores.base import Store
from deltastore.stores.local import LocalStore
from deltastore.stores.open import open_store
from deltastore.stream import AsyncStream
from deltastore.validate import Level, Report, validate

__all__ = ["ValidationPlan", "measure_validation"]

_PIECE: Final = 8 << 20
_HASHED: Final = 512 << 20
"""Bytes that are hashed for the rate of the machine."""

_DELTAS: Final = 12
_DENSITY: Final = 0.1

Bits = np.ndarray[Any, Any]
Work = Callable[[], Coroutine[Any, Any, int]]


@dataclass(frozen=True, slots=True)
class ValidationPlan:
    """What to measure with: bytes of the stream of anchors, objects side by side, versions, and how often."""

    nbytes: int = 200_000_000
    jobs: int = 0
    versions: int = 1000
    repeats: int = 3

    @property
    def side_by_side(self) -> int:
        """``jobs``, or two for each processor, as the command has it."""
        return self.jobs or 2 * chosen_threads(None)


async def measure_validation(url: str, plan: ValidationPlan) -> AsyncGenerator[Figure, None]:
    """Measure the stream at ``url``; where there is none, streams made in places of their own there.

    Those places are empty again at the end. Figures come as they are found. Raises ``InputError`` and what
    the store raises.
    """
    if await _holds_stream(url):
        for figure in await _measure(url, "of the stream", plan):
            yield figure
        return
    for name, made in (("of an anchor", _anchor), ("of deltas", _deltas)):
        async with own_place(url, "bench") as place:
            await made(place, plan)
            for figure in await _measure(place, name, plan, without_first=made is _deltas):
                yield figure
    async with own_place(url, "bench") as place:
        await _versions(place, plan)
        yield await _structure(place, plan)


async def _holds_stream(url: str) -> bool:
    async with open_store(url) as store:
        try:
            await Log(store).birth()
        except NotFoundError:
            return False
    return True


async def _anchor(url: str, plan: ValidationPlan) -> None:
    """A stream that is all one anchor."""
    async with await AsyncStream.create(open_store(url), Noise(plan.nbytes).tensors):
        pass


async def _deltas(url: str, plan: ValidationPlan) -> None:
    """A stream of deltas that change a tenth of a model, each by small steps."""
    random = np.random.default_rng(0)
    model = Noise(plan.nbytes // 2).tensors
    async with await AsyncStream.create(open_store(url), model) as stream:
        writer = await stream.writer(model)
        for _ in range(_DELTAS):
            for bits in model.values():
                bits += random.random(bits.shape, np.float32) < _DENSITY
            await writer.publish()


async def _versions(url: str, plan: ValidationPlan) -> None:
    """A stream of very many versions that change little."""
    model: dict[str, Bits] = {f"layers.{layer}.w": np.zeros((16, 16), np.uint16) for layer in range(8)}
    async with await AsyncStream.create(open_store(url), model) as stream:
        writer = await stream.writer(model)
        for version in range(1, plan.versions):
            model[f"layers.{version % 8}.w"][version % 16] += 1
            await writer.publish()


async def _measure(url: str, name: str, plan: ValidationPlan, *, without_first: bool = False) -> list[Figure]:
    """Content beside reading and hashing, in turns, and its memory.

    ``without_first``: without the content of version 0, which notes say is sound.
    """
    jobs = plan.side_by_side
    async with open_store(url) as store:
        with TemporaryDirectory() as folder:
            content = _Content(store, jobs, Path(folder) / "notes" if without_first else None)
            nbytes = await content.prepare()
            pieces = [piece async for piece in _pieces(store)]
            works: dict[str, Work] = {
                "read": lambda: _read(store, pieces, jobs),
                "one": lambda: _hash(nbytes, 1),
                "all": lambda: _hash(nbytes, jobs),
                "content": content.validated,
            }
            rates = await _best_rates(works, plan.repeats)
    mega = {work: rate / 1e6 for work, rate in rates.items()}
    rate, one, threads = mega["content"], "sha256 in memory, 1 thread", f"sha256 in memory, {jobs} threads"
    label = f"content {name}, {jobs} jobs"
    found = [
        Figure("reading all objects", mega["read"], "MB/s"),
        Figure(one, mega["one"], "MB/s"),
        Figure(threads, mega["all"], "MB/s"),
        Figure(label, rate, "MB/s", rate / mega["one"], one, target=0.7),
        Figure(label, rate, "MB/s", rate / mega["all"], threads),
    ]
    if not url.startswith("memory://"):
        peak = await _peak(url, jobs)
        found.append(Figure(f"memory, content {name}", peak / 1e6, "MB", target=300, at_most=True))
    return found


class _Content:
    """Validations at level content, each with fresh notes that version 0 is sound, or without any."""

    def __init__(self, store: Store, jobs: int, notes: Path | None) -> None:
        self._store = store
        self._jobs = jobs
        self._notes = notes
        self._noted = b""
        self._nbytes = 0

    async def prepare(self) -> int:
        """Bytes that a validation reads."""
        report = await _sound(self._store, Level.STRUCTURE, self._jobs)
        self._nbytes = report.nbytes
        if self._notes is not None:
            first = await validate(self._store, level=Level.CONTENT, version=0, resume=self._notes)
            self._noted = self._notes.read_bytes()
            self._nbytes -= first.nbytes
        return self._nbytes

    async def validated(self) -> int:
        """Validate; the bytes that were read."""
        if self._notes is not None:
            self._notes.write_bytes(self._noted)
        await _sound(self._store, Level.CONTENT, self._jobs, self._notes)
        return self._nbytes


async def _structure(url: str, plan: ValidationPlan) -> Figure:
    """How long the structure of many versions takes."""
    async with open_store(url) as store:

        async def structure() -> int:
            return (await _sound(store, Level.STRUCTURE, plan.side_by_side)).versions

        rate = (await _best_rates({"structure": structure}, plan.repeats))["structure"]
    wanted = 5.0 if isinstance(store, LocalStore) else None
    return Figure(
        f"structure of {plan.versions} versions", plan.versions / rate, "s", target=wanted, at_most=True
    )


async def _best_rates(works: dict[str, Work], repeats: int) -> dict[str, float]:
    """Of each work, called in turns, what it gives a second, at best."""
    best = dict.fromkeys(works, 0.0)
    for _ in range(repeats):
        for name, work in works.items():
            began = time.perf_counter()
            done = await work()
            best[name] = max(best[name], done / (time.perf_counter() - began))
    return best


async def _pieces(store: Store) -> AsyncIterator[tuple[str, int, int]]:
    """(key, start, length) of all bytes, in pieces."""
    async for found in store.list(""):
        for start in range(0, found.size, _PIECE):
            yield found.key, start, min(_PIECE, found.size - start)


async def _read(store: Store, pieces: list[tuple[str, int, int]], jobs: int) -> int:
    done = 0

    async def read(piece: tuple[str, int, int]) -> int:
        return len(await store.get_range(*piece))

    async with aclosing(in_order(pieces, read, ahead=2 * jobs)) as lengths:
        async for length in lengths:
            done += length
    return done


async def _hash(nbytes: int, threads: int) -> int:
    """Hash so many bytes, but not more than it takes to know, in so many threads."""
    data = bytes(_PIECE)
    times = max(min(nbytes, _HASHED) // _PIECE // threads, 1)

    def work() -> None:
        for _ in range(times):
            hashlib.sha256(data).digest()

    await asyncio.gather(*(asyncio.to_thread(work) for _ in range(threads)))
    return times * threads * _PIECE


async def _sound(store: Store, level: Level, jobs: int, resume: Path | None = None) -> Report:
    """What is found of a stream, which must be sound."""
    report = await validate(store, level=level, jobs=jobs, resume=resume)
    if not report.ok:
        raise StoreError("store_failed", f"{store.url} is not sound: {report.problems[0].message}")
    return report


async def _peak(url: str, jobs: int) -> int:
    """The most memory that a process has which does nothing but check the stream."""
    program = (sys.executable, "-m", "deltastore.bench.validation_peak", url, str(jobs))
    process = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    if process.returncode:
        raise StoreError("store_failed", f"checking {url} in a process of its own failed")
    return int(out)
