"""Any history of steps, edits, loaded states, and rounds that are published, aborted or left open."""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from deltastore.detect.inverse import AdamWInverse
from deltastore.detect.snapshot import Snapshot
from tests.detect.oracle import Copy, Oracle
from tests.detect.trainers import Trainer, step

__all__ = ["InverseHistories"]

Result = TypeVar("Result")

which = st.sampled_from(["first", "first", "second", "both", "both"])


class InverseHistories(RuleBasedStateMachine):
    """What a trainer and a writer may do to a detector, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.saved: list[Any] = []

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.runner.run(work)

    def teardown(self) -> None:
        if hasattr(self, "detector"):
            self.detector.close()
        self.runner.close()

    @initialize(
        seed=st.integers(0, 1 << 16),
        kind=st.sampled_from(["fused", "foreach", "single"]),
        limit=st.sampled_from([64, 400, 5000, 1 << 21]),
        start=st.sampled_from(["both", "both", "first", "after a step", "a copy"]),
        threads=st.sampled_from([1, 2]),
    )
    def begin(self, seed: int, kind: str, limit: int, start: str, threads: int) -> None:
        self.trainer = Trainer(seed, kind)
        live = self.trainer.live(limit)
        published = None
        if start == "a copy":
            snapshot = self.run(Snapshot.of(live))
            published = Copy.of(live)
            self.steps("both", 0, 2)
            self.detector = AdamWInverse.after(live, snapshot, threads=threads)
        else:
            if start == "after a step":
                self.steps("both", 0, 1)
            self.detector = AdamWInverse(live, threads=threads)
        self.detector.attach(self.trainer.first)
        self.late = start == "first"
        if not self.late:
            self.detector.attach(self.trainer.second)
        self.oracle = Oracle(live, self.detector, published)
        self.run(self.oracle.check())

    def steps(self, optimizers: str, skip: int, count: int) -> None:
        for _ in range(count):
            step(self.trainer.optimizers(optimizers), self.trainer.random, skip=skip)

    # The trainer ------------------------------------------------------------------------------------------

    @rule(optimizers=which, skip=st.sampled_from([0, 0, 2, 3]), count=st.sampled_from([1, 1, 2, 4]))
    def optimizers_step(self, optimizers: str, skip: int, count: int) -> None:
        self.steps(optimizers, skip, count)

    @rule(factor=st.sampled_from([0.0, 0.5, 3.0, -1.0, math.inf]), optimizers=which)
    def a_step_has_another_rate_than_was_captured(self, factor: float, optimizers: str) -> None:
        for optimizer in self.trainer.optimizers(optimizers):
            with _rate_changed_inside(optimizer, factor):
                step([optimizer], self.trainer.random)

    @rule()
    def a_step_fails_before_it_counts(self) -> None:
        def fail() -> float:
            with torch.no_grad():
                self.trainer.tensors["norm"].mul_(1.01)
            raise ArithmeticError("the loss is not a number")

        with suppress(ArithmeticError):
            self.trainer.first.step(fail)

    @rule(factor=st.sampled_from([0.0, 0.5, 2.0]))
    def a_scheduler_moves(self, factor: float) -> None:
        for group in self.trainer.first.param_groups:
            group["lr"] = 1e-4 * factor

    @rule(by=st.sampled_from([-1.0, 0.0, 1.00001, 40.0, math.nan]), count=st.sampled_from([1, 5, 60]))
    def weights_are_edited(self, by: float, count: int) -> None:
        tensors = [tensor for tensor in self.trainer.tensors.values() if tensor.is_floating_point()]
        self.trainer.edit(tensors, lambda value: value * by, count)

    @rule(count=st.sampled_from([1, 3]))
    def a_buffer_counts(self, count: int) -> None:
        self.trainer.edit([self.trainer.tensors["steps"]], lambda value: value + 7, count)

    @rule(by=st.sampled_from([0.0, 1.5, -3.0, math.nan, math.inf]), count=st.sampled_from([1, 20]))
    def moments_are_edited(self, by: float, count: int) -> None:
        moments = self.trainer.moments()
        if moments:
            self.trainer.edit(moments, lambda value: value * by, count)

    @rule()
    def weights_are_loaded(self) -> None:
        self.trainer.reload()

    @rule()
    def a_state_is_saved(self) -> None:
        self.saved.append(copy.deepcopy((self.trainer.first.state_dict(), self.trainer.second.state_dict())))

    @precondition(lambda self: self.saved)
    @rule(older=st.integers(0, 3))
    def a_state_is_loaded(self, older: int) -> None:
        first, second = copy.deepcopy(self.saved[-1 - older % len(self.saved)])
        self.trainer.first.load_state_dict(first)
        self.trainer.second.load_state_dict(second)

    @precondition(lambda self: self.late)
    @rule()
    def the_second_optimizer_is_attached(self) -> None:
        if not self.oracle.open:
            self.detector.attach(self.trainer.second)
            self.late = False

    # The writer -------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.oracle.open)
    @rule()
    def a_version_is_published(self) -> None:
        self.run(self.oracle.publish())

    @precondition(lambda self: not self.oracle.open)
    @rule(whole=st.sampled_from([False, False, True]))
    def a_round_is_left_open(self, whole: bool) -> None:
        self.run(self.oracle.take_whole() if whole else self._find())

    async def _find(self) -> None:
        await self.oracle.find()

    @precondition(lambda self: self.oracle.open)
    @rule(well=st.booleans())
    def its_outcome_is_known(self, well: bool) -> None:
        self.run(self.oracle.commit() if well else self.oracle.abort())

    @precondition(lambda self: not self.oracle.open)
    @rule(batches=st.integers(0, 2))
    def a_round_is_given_up_half_way(self, batches: int) -> None:
        self.run(self._give_up(batches))

    async def _give_up(self, batches: int) -> None:
        changes = self.detector.changes()
        for _ in range(batches):
            await anext(changes, None)
        await changes.aclose()
        await self.oracle.abort()


@contextmanager
def _rate_changed_inside(optimizer: Any, factor: float) -> Iterator[None]:
    """``lr`` is another one from when it was captured to the end of the step."""
    before = [group["lr"] for group in optimizer.param_groups]

    def change(*_: object) -> None:
        for group in optimizer.param_groups:
            group["lr"] *= factor

    hook = optimizer.register_step_pre_hook(change)
    try:
        yield
    finally:
        hook.remove()
        for group, lr in zip(optimizer.param_groups, before, strict=True):
            group["lr"] = lr
