"""What publishing takes of memory, and what was found, in a process that does nothing else.

python -m deltastore.bench.inversion.memory DETECTOR URL PARAMETERS LR THREADS EVERY...

prints one ``Taken`` for each EVERY as JSON. Memory counts from before the writer is opened, so that what a
detector keeps from version to version is part of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from deltastore.bench.figure import Figure
from deltastore.bench.inversion.plan import InversionPlan
from deltastore.bench.inversion.trainer import Trainer, torch_threads
from deltastore.bench.place import below
from deltastore.bench.resident import measured_rise
from deltastore.errors import StoreError
from deltastore.sync import Stream, create
from deltastore.writer.published import Published

__all__ = ["Taken", "measure_memory"]

_INVERSION: Final = "inversion"
_SNAPSHOT: Final = "snapshot"

_SHARE: Final = 0.025
_BESIDES: Final = 256_000_000
_ELEMENT: Final = 2
"""Bytes of a BF16 element."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Bytes of memory for a version of ``every`` steps, and what it became.

    ``certificate``: the numbers of a ``Certificate``; empty for a detector that has none.
    """

    every: int
    rise: int
    elements: int
    changed: int
    nbytes: int
    certificate: dict[str, int]


def measure_memory(place: str, plan: InversionPlan) -> Iterator[Figure]:
    """Both detectors, each in a process of its own that takes the same steps and publishes to ``place``."""
    inverted = _apart(_INVERSION, place, plan)
    copied = _apart(_SNAPSHOT, place, plan)
    for mine, other in zip(inverted, copied, strict=True):
        yield from _memory(mine, other)
    for mine, other in zip(inverted, copied, strict=True):
        yield from _findings(mine, other)


def _apart(detector: str, place: str, plan: InversionPlan) -> list[Taken]:
    numbers = map(str, (plan.parameters, plan.lr, plan.threads, *plan.every))
    program = [sys.executable, "-m", __name__, detector, below(place, detector), *numbers]
    done = subprocess.run(program, capture_output=True, check=False)
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise StoreError("store_failed", f"publishing in a process of its own failed: {last}")
    return [Taken(**one) for one in json.loads(done.stdout)]


def _memory(mine: Taken, other: Taken) -> Iterator[Figure]:
    allowed = _SHARE * _ELEMENT * mine.elements + _BESIDES
    often = _often(mine)
    yield Figure(
        f"memory, {often}",
        mine.rise / 1e6,
        "MB",
        mine.rise / allowed,
        f"{allowed / 1e6:.0f} MB",
        1.0 if mine.every == 1 else None,
        at_most=True,
    )
    yield Figure(
        f"memory with a copy, {often}",
        other.rise / 1e6,
        "MB",
        other.rise / (_ELEMENT * mine.elements),
        "the BF16 model",
    )
    if other.rise:
        saved = 100 * (1 - mine.rise / other.rise)
        yield Figure(f"memory saved, {often}", saved, "%", mine.rise / other.rise, "the memory with a copy")


def _findings(mine: Taken, other: Taken) -> Iterator[Figure]:
    often, found = _often(mine), mine.certificate
    yield Figure(f"changed, {often}", 100 * other.changed / other.elements, "%")
    yield Figure(f"size, {often}", mine.nbytes / max(mine.changed, 1), "B/changed")
    yield Figure(f"uncertain, {often}", 1e6 * found["uncertain"] / max(found["inverted"], 1), "per million")
    for name in ("settled", "unexplained"):
        yield Figure(f"{name}, {often}", found[name], "blocks")
    yield Figure(f"sent unchanged, {often}", mine.changed - other.changed, "elements")


def _often(taken: Taken) -> str:
    return "every step" if taken.every == 1 else f"every {taken.every} steps"


def _measure(detector: str, url: str, plan: InversionPlan) -> Iterator[Taken]:
    trainer = Trainer(plan.parameters, plan.lr)
    optimizer = trainer.optimizer if detector == _INVERSION else None
    with create(url, trainer.weights, cast="BF16") as stream:
        for every in plan.every:
            with measured_rise() as rise:
                done = _published(stream, trainer, optimizer, plan.threads, every)
            found = {} if done.certificate is None else done.certificate.model_dump()
            yield Taken(every, rise.nbytes, done.elements, done.changed, done.nbytes, found)


def _published(stream: Stream, trainer: Trainer, optimizer: Any, threads: int, steps: int) -> Published:
    """One version by a writer of its own, which is gone at the end, with all that it keeps."""
    with stream.writer(trainer.weights, cast=True, optimizer=optimizer, threads=threads) as writer:
        for _ in range(steps):
            trainer.step()
        return writer.publish()


if __name__ == "__main__":
    _, detector, url, parameters, lr, threads, *every = sys.argv
    plan = InversionPlan(int(parameters), float(lr), tuple(map(int, every)), int(threads))
    with torch_threads(plan.threads):
        sys.stdout.write(json.dumps([asdict(one) for one in _measure(detector, url, plan)]))
