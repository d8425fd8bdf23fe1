"""What the inversion does not lead back to what was published is sent whole, block by block."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest
import torch

from tests.detect.oracle import Copy
from tests.detect.trainers import Trainer
from tests.detect.watching import BLOCK, layer, train, watched


class TestUnexplained:
    """What the inversion does not lead back to what was published is sent whole, block by block."""

    @pytest.mark.parametrize("at", [0, 2047, 2048, 4799])
    async def test_a_block_that_nothing_explains_is_sent_and_no_other(self, at: int) -> None:
        trainer = Trainer(11)
        oracle = watched(trainer)
        train(trainer)
        await oracle.publish()
        layer(trainer)[at] += 1
        found = await oracle.publish()
        assert found.changed == 1
        assert found.sent == (BLOCK if at < 2 * BLOCK else 4800 - 2 * BLOCK)
        assert (await oracle.publish()).rows == 0

    async def test_so_it_is_in_the_middle_of_a_step(self) -> None:
        trainer = Trainer(12)
        oracle = watched(trainer)
        train(trainer)
        await oracle.publish()
        train(trainer)
        before, block = Copy.of(oracle.live), slice(BLOCK, 2 * BLOCK)
        moved = sum(
            int((was != now).sum()) for was, now in zip(oracle.published.bits, before.bits, strict=True)
        )
        part = [part.name for part in oracle.live.parts].index("layers.0.weight")
        inside = oracle.published.bits[part].ravel()[block] != before.bits[part].ravel()[block]
        layer(trainer)[BLOCK + 5] = 3.0
        found = await oracle.find()
        findings = oracle.detector.findings
        assert findings is not None
        assert findings.unexplained == 1
        assert found.sent == moved - int(inside.sum()) + BLOCK
        await oracle.commit()

    async def test_what_went_back_is_not_sent(self) -> None:
        """A step, and its weights put back by hand: the block has its digest, whatever the moments say."""
        trainer = Trainer(13)
        oracle = watched(trainer)
        train(trainer)
        await oracle.publish()
        kept = {name: tensor.detach().clone() for name, tensor in trainer.tensors.items()}
        train(trainer)
        with torch.no_grad():
            for name, tensor in trainer.tensors.items():
                tensor.copy_(kept[name])
        assert (await oracle.publish()).rows == 0

    @pytest.mark.parametrize("every", [1, 4])
    async def test_a_wrong_rate_is_a_larger_version_and_a_warning(
        self, every: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        trainer = Trainer(14)
        oracle = watched(trainer)
        train(trainer)
        await oracle.publish()
        train(trainer, every - 1)
        hook = trainer.first.register_step_pre_hook(lambda *_: _scale_rates(trainer.first, 30))
        train(trainer)
        hook.remove()
        caplog.clear()
        found = await oracle.publish()
        assert found.sent > found.changed
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert "a hyper-parameter is probably wrong" in record.message
        _scale_rates(trainer.first, 1 / 30)
        train(trainer, every)
        found = await oracle.publish()
        assert found.sent == found.changed

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
    @pytest.mark.parametrize("which", ["exp_avg", "exp_avg_sq"])
    async def test_moments_that_are_no_moments(self, bad: float, which: str) -> None:
        trainer = Trainer(15)
        oracle = watched(trainer)
        train(trainer)
        await oracle.publish()
        train(trainer)
        trainer.first.state[trainer.tensors["layers.1.weight"]][which].view(-1)[[3, 2050]] = bad
        found = await oracle.publish()
        assert found.sent > found.changed > 0
        train(trainer)
        await oracle.publish()

    async def test_every_bit_is_compared(self) -> None:
        trainer = Trainer(16)
        oracle = watched(trainer)
        layer(trainer)[:3] = torch.tensor([0.0, -0.0, math.nan])
        await oracle.publish()
        layer(trainer)[:3] = torch.tensor([-0.0, 0.0, -math.nan])
        changed = (await oracle.publish()).changed
        assert changed in (2, 3)  # not every library keeps the sign of a NaN


def _scale_rates(optimizer: Any, by: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] *= by
