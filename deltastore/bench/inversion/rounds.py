"""Rounds of detection that nobody stores: the whole of it, and what its kernels take of that."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from deltastore.bench.inversion.trainer import Trainer
from deltastore.detect.adamw.attachment import Attachment
from deltastore.detect.adamw.back import StepBack, held_of
from deltastore.detect.batch import BATCH_ELEMENTS
from deltastore.detect.certified import Certified
from deltastore.detect.findings import Findings
from deltastore.detect.inverse import AdamWInverse
from deltastore.detect.laid import Room
from deltastore.kernels.cpu import encode_changed, invert
from deltastore.kernels.cpu.ceiling import read_both
from deltastore.layout.cutting import plain_table
from deltastore.layout.live import live_specs
from deltastore.layout.live_parts import LiveParts

__all__ = ["READ_BYTES", "KernelRound", "KernelSeconds", "Rounds", "read_state"]

READ_BYTES: Final = 12
"""Bytes an element that ``read_state`` reads: master weight and two moments."""


def read_state(trainer: Trainer, threads: int) -> None:
    """Read every master weight and moment once, and do nothing else."""
    for weight in trainer.weights.values():
        state = trainer.optimizer.state[weight]
        master, mean, square = (
            tensor.detach().numpy().reshape(-1) for tensor in (weight, state["exp_avg"], state["exp_avg_sq"])
        )
        read_both(master, mean, threads=threads)
        half = len(square) // 2
        read_both(square[:half], square[half : 2 * half], threads=threads)


class Rounds:
    """A detector that is followed by no writer."""

    def __init__(self, trainer: Trainer, threads: int) -> None:
        self._inverse = AdamWInverse(_live(trainer), threads=threads)
        self._inverse.attach(trainer.optimizer)

    def find(self, threads: int) -> int:
        """One round, encoded batch by batch, of which nothing is kept; how many elements changed."""
        self._inverse.use_threads(threads)

        async def drain() -> int:
            return sum([int(patches.changed.sum()) async for patches in self._inverse.changes()])

        return asyncio.run(drain())

    def commit(self) -> None:
        """The last round counts as published; else it would be found again."""
        self._inverse.committed()

    def close(self) -> None:
        """Follow the optimizer no longer."""
        self._inverse.close()


@dataclass(frozen=True, slots=True)
class KernelSeconds:
    """What the kernels of one round took: the inversion with its certificate, and the encoder.

    ``changed``: elements that differ from what they were.
    """

    invert: float
    encode: float
    changed: int


class KernelRound:
    """The kernels of a round, called batch by batch as the detector calls them, with the clock around each.

    Made before the step that is to be inverted.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._live = _live(trainer)
        self._certified = Certified(self._live, 1)
        self._room = Room(BATCH_ELEMENTS * 2)
        self._attachment = Attachment(trainer.optimizer, held_of(self._live), before=_nothing, after=_nothing)
        self._wanted: NDArray[np.uint64] = self._certified.digests_now()

    def run(self, threads: int) -> KernelSeconds:
        """One round; the same one whenever it is called."""
        back = StepBack(self._live, [self._attachment], Findings())
        inverting, encoding, changed = 0.0, 0.0, 0
        for number, batch in enumerate(self._certified.batches):
            laid = self._certified.laid(number, batch.boxes)
            new, old = (buffer[: laid.elements] for buffer in self._room.views(batch.storage)[:2])
            spans = [back.span(of) for of in batch.boxes]
            wanted = self._wanted[laid.numbers]
            began = time.perf_counter()
            invert(laid.blocks, spans, back.rules, wanted, new, old, threads=threads)
            inverting += time.perf_counter() - began
            after, before = (laid.over(self._live.table.kernels, bits) for bits in (new, old))
            began = time.perf_counter()
            patches = encode_changed(after, before, batch.chunks, threads=threads)
            encoding += time.perf_counter() - began
            changed += int(patches.changed.sum())
        return KernelSeconds(inverting, encoding, changed)

    def close(self) -> None:
        """Follow the optimizer no longer."""
        self._attachment.detach()


def _live(trainer: Trainer) -> LiveParts:
    table = plain_table(live_specs(trainer.weights, cast="BF16"))
    return LiveParts(table, trainer.weights, cast=True)


def _nothing(_: Attachment) -> None:
    """An attachment needs somebody to tell of its steps."""
