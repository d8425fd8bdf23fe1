"""Carrying a window of chunks through all versions of a course, delta by delta."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deltastore.anchors.portion import AnchorPortion
from deltastore.errors import CorruptError, PatchError
from deltastore.format.table import TensorTable
from deltastore.kernels.cpu import mismatches, resolve, scatter
from deltastore.kernels.rows import StagedBits
from deltastore.stores.base import Store
from deltastore.windows.ahead import by_weight
from deltastore.windows.course import Course
from deltastore.windows.cutting import Window
from deltastore.windows.names import PackNames
from deltastore.windows.patches import Batch, FetchedBatch, bad_row, batches_of, check_hashes, fetch_batch
from deltastore.windows.rows import RowFile, plain_rows
from deltastore.windows.sharing import Written
from deltastore.windows.weights import Weights

__all__ = ["Applied", "Walk", "Watch", "Weights"]

Bits = np.ndarray[Any, Any]

_AHEAD_BYTES: Final = 8 << 20
_AHEAD: Final = 4
"""Batches of one window on their way or in memory, and what they weigh together, unless one weighs more."""


@dataclass(frozen=True, slots=True)
class Applied:
    """Patches of one pack that fit: ``differences`` (n,) uint64 of rows; ``changed`` elements differ."""

    batch: Batch
    weights: Weights
    differences: NDArray[np.uint64]
    changed: int


class Watch:
    """What somebody wants to know of the versions over one window: by itself nothing but what is wrong.

    Only ``failed`` may raise.
    """

    def begun(self, window: Window, weights: Weights) -> None:
        """The anchor's weights. Called in a worker thread, as are ``fits`` and ``stepped``."""

    def skips(self, step: int) -> bool:  # noqa: ARG002
        """Whether nobody needs a step any more; then nor does anybody what builds on it."""
        return False

    def fits(self, fetched: FetchedBatch, weights: Weights, staged: StagedBits) -> None:
        """Patches that will be applied: ``weights`` are still those that they change, ``staged`` new bits."""

    def stepped(self, applied: Applied) -> None:
        """Patches were applied; they are written where anything builds on them."""

    def failed(self, batch: Batch, error: CorruptError) -> None:  # noqa: ARG002
        """Patches that are not what they must be; nothing of this batch is written."""
        raise error


@dataclass(frozen=True, slots=True)
class Walk:
    """A course over an anchor. ``shared``: the steps of which several packs may patch one chunk."""

    store: Store
    table: TensorTable
    portion: AnchorPortion
    course: Course
    windows: Sequence[Window]
    rows: RowFile
    names: PackNames
    shared: frozenset[int]
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Of fetching an anchor's object, which is as large as a window: one is in memory at a time."""

    def close(self) -> None:
        """Give temporary files back."""
        self.rows.close()

    async def over(self, number: int, watch: Watch) -> dict[int, Weights]:
        """Carry window ``number`` through all steps; returns what stands in each buffer then.

        A buffer of the course that is not there was never needed: what would be in it is in buffer 0.

        Memory: its weights once for each buffer of the course, the anchor's object that holds it, and a few
        batches of patches. Raises what fetching chunks of the anchor does, and what ``watch.failed`` does.
        """
        window = self.windows[number]
        passage = _Passage(self, window, await self._anchor(window))
        await asyncio.to_thread(watch.begun, window, passage.buffers[0])
        batches = batches_of(self.rows.of(number), watch.skips)
        async with aclosing(
            by_weight(batches, self._fetch, lambda batch: batch.nbytes, budget=_AHEAD_BYTES, most=_AHEAD)
        ) as patches:
            async for one in patches:
                if watch.skips(one.batch.step):
                    continue
                try:
                    await asyncio.to_thread(passage.step, one, watch)
                except CorruptError as error:
                    watch.failed(one.batch, error)
        return passage.buffers

    async def _anchor(self, window: Window) -> Weights:
        weights = Weights(self.table, window)
        async with self.turn, aclosing(self.portion.fetch(window.chunks)) as objects:
            async for fetched in objects:
                await asyncio.to_thread(weights.fill, fetched.stored)
                del fetched
        return weights

    async def _fetch(self, batch: Batch) -> FetchedBatch:
        key, version = self.names.pack(batch.step, batch.pack), self.course.steps[batch.step].version
        return await fetch_batch(self.store, batch, key, version)


class _Passage:
    """A window on its way through the steps."""

    def __init__(self, walk: Walk, window: Window, weights: Weights) -> None:
        self._walk = walk
        self._window = window
        self._next = 0
        self._written = Written(walk.table)
        self.buffers = {0: weights}

    def step(self, fetched: FetchedBatch, watch: Watch) -> None:
        """Apply a batch, once all copies are made that steps up to its own stand in."""
        batch, table = fetched.batch, self._walk.table
        weights = self._weights(batch.step)
        if fetched.failure is not None:
            raise fetched.failure
        key, rows = self._walk.names.pack(batch.step, batch.pack), plain_rows(batch.rows)
        check_hashes(fetched, key, table)
        try:
            staged, differences = resolve(weights.pieces, rows, fetched.body)
        except PatchError as error:
            problem = f": {error.reason}"
            raise bad_row(
                error.code, error.rule or "DS036", batch.rows[error.row], key, table, problem
            ) from None
        if batch.step in self._walk.shared:
            self._check_disjoint(batch, staged)  # first: what is written twice changes the digest otherwise
        wrong = np.flatnonzero(differences != rows["difference"])
        if len(wrong):
            problem = " changes the digest otherwise than its row says"
            raise bad_row("bad_digest", "DS046", batch.rows[wrong[0]], key, table, problem)
        watch.fits(fetched, weights, staged)
        changed = mismatches(weights.pieces, staged)
        if self._walk.course.steps[batch.step].target is not None:
            scatter(weights.pieces, staged)
        watch.stepped(Applied(batch, weights, differences, changed))

    def _weights(self, number: int) -> Weights:
        """What a step is applied to."""
        buffers, steps = self.buffers, self._walk.course.steps
        for step in steps[self._next : number + 1]:
            if step.target is not None and step.target != step.source:
                if step.target not in buffers:
                    buffers[step.target] = Weights(self._walk.table, self._window)
                buffers[step.target].take(buffers[step.source])
        self._next = number + 1
        step = steps[number]
        return buffers[step.source if step.target is None else step.target]

    def _check_disjoint(self, batch: Batch, staged: StagedBits) -> None:
        again = self._written.add(batch.step, staged)
        if again is not None:
            array, chunk = staged.chunks[again].tolist()
            pattern, where = self._walk.table.arrays[array].pattern, self._walk.names.record(batch.step)
            message = f"{where}: two writers patch one element of {pattern} chunk {chunk}"
            raise CorruptError("bad_patch", message, where=where, rule="DS045", tensor=pattern)
