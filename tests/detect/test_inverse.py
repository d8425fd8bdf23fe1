"""The detector that inverts: rounds of an optimizer that is as it says."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

from deltastore.detect.inverse import AdamWInverse
from tests.detect.oracle import Found, Oracle
from tests.detect.trainers import Trainer, live_of
from tests.detect.watching import BLOCK, train, watched


class TestRounds:
    """Rounds of an optimizer that is as it says."""

    @pytest.mark.parametrize("every", [1, 4, 16])
    @pytest.mark.parametrize("kind", ["fused", "foreach", "single"])
    async def test_exactly_what_changed_is_sent(self, every: int, kind: str) -> None:
        trainer = Trainer(1, kind)
        oracle = watched(trainer, 5000)
        await _nothing_beyond_what_changed(trainer, oracle, every)

    @pytest.mark.parametrize("limit", [64, 700, 1 << 21])
    @pytest.mark.parametrize("threads", [1, 3])
    async def test_however_tensors_are_cut(self, limit: int, threads: int) -> None:
        trainer = Trainer(2)
        await _nothing_beyond_what_changed(trainer, watched(trainer, limit, threads), 3)

    async def test_parameters_without_gradient_stay(self) -> None:
        trainer = Trainer(3)
        oracle = watched(trainer, 5000)
        for skip in (2, 3, 2):
            train(trainer, 2, skip=skip)
            found = await oracle.publish()
            assert found.sent == found.changed > 0

    async def test_nothing_changed_is_nothing_sent(self) -> None:
        trainer = Trainer(4)
        oracle = watched(trainer)
        assert (await oracle.publish()).rows == 0
        train(trainer)
        await oracle.publish()
        assert (await oracle.publish()).rows == 0
        for group in (*trainer.first.param_groups, *trainer.second.param_groups):
            group["lr"] = 0.0
        train(trainer)
        assert (await oracle.publish()).rows == 0

    async def test_an_aborted_round_is_found_again(self) -> None:
        trainer = Trainer(5)
        oracle = watched(trainer, 700)
        train(trainer, 2)
        first = await oracle.find()
        await oracle.abort()
        assert _bodies(await oracle.find()) == _bodies(first)
        await oracle.abort()
        train(trainer)
        later = await oracle.publish()
        assert later.sent == later.changed > 0

    @pytest.mark.parametrize("well", [True, False])
    @pytest.mark.parametrize("before", [0, 1, 3])
    @pytest.mark.parametrize("meanwhile", [0, 1, 3])
    async def test_steps_go_on_while_the_outcome_is_unknown(
        self, well: bool, before: int, meanwhile: int
    ) -> None:
        trainer = Trainer(6)
        oracle = watched(trainer, 5000)
        for _ in range(2):
            train(trainer, before)
            await oracle.find()
            train(trainer, meanwhile)
            await (oracle.commit() if well else oracle.abort())
        found = await oracle.publish()
        assert found.sent == found.changed
        assert (found.changed > 0) == (meanwhile > 0 or (before > 0 and not well))

    async def test_a_round_that_was_given_up_leaves_no_trace(self) -> None:
        trainer = Trainer(7)
        oracle = watched(trainer, 700)
        train(trainer, 2)
        changes = oracle.detector.changes()
        await anext(changes)
        await changes.aclose()
        await oracle.abort()
        train(trainer)
        found = await oracle.publish()
        assert found.sent == found.changed > 0

    async def test_stored_whole_and_gone_on_from(self) -> None:
        trainer = Trainer(8)
        oracle = watched(trainer, 5000)
        train(trainer, 3)
        await oracle.take_whole()
        await oracle.commit()
        assert (await oracle.publish()).rows == 0
        train(trainer, 2)
        await oracle.take_whole()
        await oracle.abort()
        found = await oracle.publish()
        assert found.sent == found.changed > 0


async def _nothing_beyond_what_changed(trainer: Trainer, oracle: Oracle, every: int) -> None:
    detector = oracle.detector
    for _ in range(5 if every < 16 else 2):
        train(trainer, every)
        found = await oracle.find()
        findings = detector.findings
        assert findings is not None
        assert found.sent == found.changed > 0
        assert (findings.unexplained, dict(findings.reasons)) == (0, {})
        elements = sum(tensor.numel() for tensor in _inverted(trainer))
        assert findings.inverted == every * elements
        await oracle.commit()


def _inverted(trainer: Trainer) -> list[Any]:
    """Tensors, by name and not by memory, whose steps are inverted."""
    others = ("router", "half", "frozen", "steps")
    return [tensor for name, tensor in trainer.tensors.items() if name not in others]


def _bodies(found: Found) -> list[bytes]:
    return [patches.rows.tobytes() + patches.body.tobytes() for patches in found.batches]


async def test_a_model_of_nothing() -> None:
    oracle = Oracle(live := live_of({"none": torch.zeros(0, 4)}), AdamWInverse(live))
    assert (await oracle.publish()).rows == 0
    await oracle.take_whole()
    await oracle.commit()


async def test_numpy_weights_without_an_optimizer() -> None:
    model = {"a": torch.zeros(3000), "b": torch.arange(7)}
    live = live_of(model)
    oracle = Oracle(live, AdamWInverse(live))
    model["a"][5] = 1
    found = await oracle.publish()
    assert (found.changed, found.sent) == (1, BLOCK)
    model["b"][2] = 9
    assert (await oracle.publish()).sent == 7


def test_two_threads_take_turns() -> None:
    """Commits come from the event loop's thread while the trainer steps in another."""
    trainer = Trainer(51)
    oracle = watched(trainer)

    async def rounds() -> None:
        for _ in range(10):
            train(trainer)
            await oracle.find()
            await asyncio.gather(
                asyncio.to_thread(train, trainer), asyncio.to_thread(oracle.detector.committed)
            )
            assert oracle._found is not None
            oracle.published, oracle._found = oracle._found, None
            found = await oracle.publish()
            assert found.sent == found.changed > 0

    asyncio.run(rounds())
    assert np.isfinite(trainer.tensors["norm"].detach().numpy()).all()
