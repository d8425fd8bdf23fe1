"""Optimizers may come late, and some parts of them are of no use."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from deltastore.detect.inverse import AdamWInverse
from deltastore.detect.snapshot import Snapshot
from deltastore.layout.live import LiveWeights
from deltastore.layout.live_parts import LiveParts
from tests.detect.oracle import Copy, Oracle
from tests.detect.trainers import Trainer, live_of, step
from tests.detect.watching import train, watched
from tests.doubles.models import bf16, cut_table
from tests.doubles.optimizers import ApexOrderAdamW


class TestAttaching:
    """Optimizers may come late, and some parts of them are of no use."""

    @pytest.mark.parametrize("before", [0, 1, 3])
    @pytest.mark.parametrize("after", [0, 1, 3])
    async def test_taking_over_from_a_copy(self, before: int, after: int) -> None:
        trainer = Trainer(41)
        live = trainer.live(700)
        snapshot = await Snapshot.of(live)
        published = Copy.of(live)
        train(trainer, before)
        detector = AdamWInverse.after(live, snapshot)
        detector.attach([trainer.first, trainer.second])
        oracle = Oracle(live, detector, published)
        await oracle.check()
        train(trainer, after)
        found = await oracle.publish()
        assert found.sent == found.changed
        assert (found.changed > 0) == (before + after > 0)
        train(trainer)
        found = await oracle.publish()
        assert found.sent == found.changed > 0

    async def test_after_steps_were_taken(self) -> None:
        trainer = Trainer(42)
        train(trainer, 3)
        oracle = watched(trainer)
        train(trainer, 2)
        found = await oracle.publish()
        assert found.sent == found.changed > 0

    async def test_what_is_not_attached_is_sent_block_by_block(self) -> None:
        trainer = Trainer(43)
        live = trainer.live(1 << 21)
        detector = AdamWInverse(live)
        oracle = Oracle(live, detector)
        detector.attach(trainer.first)
        train(trainer)
        found = await oracle.publish()
        head = sum(trainer.tensors[name].numel() for name in ("head", "alias", "router", "half"))
        assert found.sent - found.changed <= head
        detector.attach(trainer.second)
        train(trainer, 2)
        found = await oracle.publish()
        assert found.sent == found.changed > 0

    async def test_why_is_said_once(self, caplog: pytest.LogCaptureFixture) -> None:
        trainer = Trainer(44)
        oracle = watched(trainer)
        warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
        assert sorted(warnings) == [
            "Adam: steps of 1 tensor ('half') are not inverted: its parameters are bfloat16: there are no "
            "FP32 master weights; a copy of what was published is kept instead",
            "Adam: steps of 1 tensor ('router') are not inverted: they are not published as BF16; a copy of "
            "what was published is kept instead",
        ]
        caplog.clear()
        for _ in range(3):
            train(trainer, 2)
            await oracle.publish()
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []

    async def test_moments_that_turn_out_to_be_of_no_use(self) -> None:
        """They are there after the first step; from then on a copy is kept."""
        param = torch.nn.Parameter(torch.linspace(-1, 1, 5000))
        live = live_of({"w": param})
        detector = AdamWInverse(live)
        optimizer = _HalfMoments([param], lr=1e-3)
        detector.attach(optimizer)
        oracle = Oracle(live, detector)
        random = torch.Generator().manual_seed(1)
        step([optimizer], random)
        await oracle.publish()
        for count in (1, 3):
            for _ in range(count):
                step([optimizer], random)
            found = await oracle.publish()
            assert found.sent == found.changed > 0


class _HalfMoments(ApexOrderAdamW):
    """Keeps its first moments as BF16, without saying so beforehand."""

    def _move(self, group: dict[str, Any], p: torch.Tensor, grad: torch.Tensor) -> None:
        if not self.state[p]:
            self.state[p]["exp_avg"] = torch.zeros_like(p, dtype=torch.bfloat16)
            self.state[p]["exp_avg_sq"] = torch.zeros_like(p)
        super()._move(group, p, grad)


class TestViews:
    """What is published need not be the parameter itself: its memory is what counts."""

    @pytest.mark.parametrize(
        "view",
        [
            lambda param: param.t(),
            lambda param: param.detach().numpy(),
            lambda param: param.detach()[10:30],
            lambda param: param.detach().view(50, 2, 60)[:, 1],
            lambda param: param.detach()[:, 7],
            lambda param: param.detach().view(-1)[333:3333],
        ],
        ids=["transposed", "numpy", "rows", "every other row", "a column", "flat"],
    )
    async def test_a_view_of_a_parameter(self, view: Callable[[Any], Any]) -> None:
        param = torch.nn.Parameter(torch.linspace(-0.3, 0.2, 6000).view(100, 60))
        shown = view(param)
        table = cut_table({"w": bf16(np.zeros(tuple(shown.shape)))}, 900)
        live = LiveWeights(table, {"w": shown}, cast=True).parts
        await _steps_are_inverted(live, param, int(np.prod(shown.shape)))

    async def test_published_as_f16_a_copy_is_kept(self) -> None:
        param = torch.nn.Parameter(torch.linspace(-0.3, 0.2, 6000).view(100, 60))
        table = cut_table({"w": np.zeros((100, 60), np.float16)}, 900)
        await _steps_are_inverted(LiveWeights(table, {"w": param}, cast=True).parts, param, 0)

    async def test_two_detectors_of_one_optimizer(self) -> None:
        trainer = Trainer(45)
        first, second = watched(trainer), watched(trainer, 700)
        for count in (1, 3):
            train(trainer, count)
            for oracle in (first, second):
                found = await oracle.find()
                assert found.sent == found.changed > 0
            await first.commit()
            await second.abort()
        found = await second.publish()
        assert found.sent == found.changed > 0


async def _steps_are_inverted(live: LiveParts, param: torch.Tensor, elements: int) -> None:
    optimizer = torch.optim.AdamW([param], lr=1e-4)
    detector = AdamWInverse(live)
    detector.attach(optimizer)
    oracle = Oracle(live, detector)
    random = torch.Generator().manual_seed(3)
    for count in (1, 3):
        for _ in range(count):
            step([optimizer], random)
        found = await oracle.find()
        assert found.sent == found.changed > 0
        assert (detector.findings.inverted, detector.findings.unexplained) == (count * elements, 0)
        await oracle.commit()


async def test_a_parameter_that_is_no_longer_frozen() -> None:
    trainer = Trainer(46)
    oracle = watched(trainer)
    train(trainer)
    await oracle.publish()
    trainer.tensors["frozen"].requires_grad_(True)
    train(trainer, 2)
    found = await oracle.publish()
    assert found.sent == found.changed > 0


async def test_a_step_that_fails_half_way(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deltastore.detect")
    trainer = Trainer(47)
    oracle = watched(trainer)
    train(trainer)
    await oracle.publish()

    def fail() -> float:
        with torch.no_grad():
            trainer.tensors["norm"].mul_(2)
        raise ArithmeticError("the loss is not a number")

    with pytest.raises(ArithmeticError):
        trainer.first.step(fail)
    found = await oracle.publish()
    assert found.changed == found.sent == 33
    with pytest.raises(ArithmeticError):
        trainer.first.step(fail)
    train(trainer)
    await oracle.publish()
    train(trainer)
    found = await oracle.publish()
    assert found.sent == found.changed > 0
