"""What the detector that inverts remembers, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from deltastore.detect.inverse import AdamWInverse
from deltastore.errors import InputError
from tests.detect.oracle import Copy, Oracle
from tests.detect.trainers import Trainer, live_of, step
from tests.detect.watching import BLOCK, train, watched


class TestMemory:
    """Old values are kept for what changed since, and for nothing else."""

    async def test_it_grows_with_what_changed(self) -> None:
        trainer = Trainer(21)
        oracle = watched(trainer)
        detector: Any = oracle.detector
        for group in (*trainer.first.param_groups, *trainer.second.param_groups):
            group["lr"] = 1e-6
        train(trainer)
        await oracle.publish()
        assert detector.published.nbytes == 0
        seen = oracle.published.again()
        for _ in range(6):
            touched = seen.differs(Copy.of(oracle.live))
            train(trainer)  # the step before this one is looked at now
            kept = detector.published.nbytes
            assert kept <= 6 * touched + 64 * len(oracle.live.chunks)
        assert 0 < kept < 0.5 * 2 * sum(one.size for one in oracle.published.bits)
        await oracle.publish()
        assert detector.published.nbytes == 0

    async def test_what_comes_back_takes_none(self) -> None:
        trainer = Trainer(22)
        oracle = watched(trainer)
        detector: Any = oracle.detector
        kept = {name: tensor.detach().clone() for name, tensor in trainer.tensors.items()}
        train(trainer, 2)
        assert detector.published.nbytes > 0
        with torch.no_grad():
            for name, tensor in trainer.tensors.items():
                tensor.copy_(kept[name])
        for group in (*trainer.first.param_groups, *trainer.second.param_groups):
            group["lr"] = 0.0
        train(trainer, 2)
        assert detector.published.nbytes == 0
        assert (await oracle.publish()).rows == 0

    async def test_blocks_of_which_nothing_is_known_take_none(self) -> None:
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 3 * BLOCK))
        optimizer = torch.optim.AdamW([weight], lr=1e-3)
        live = live_of({"w": weight})
        detector = AdamWInverse(live)
        detector.attach(optimizer)
        oracle = Oracle(live, detector)
        random = torch.Generator().manual_seed(2)
        step([optimizer], random)
        weight.detach()[BLOCK:].mul_(1.5)
        step([optimizer], random)
        touched = oracle.published.bits[0][:BLOCK] != Copy.of(live).bits[0][:BLOCK]
        step([optimizer], random)
        assert 0 < detector.published.nbytes < 2 * int(touched.sum())
        found = await oracle.find()
        assert detector.findings.unexplained == 2
        assert 2 * BLOCK < found.sent <= 3 * BLOCK
        await oracle.commit()


class TestRefusals:
    """What is said at once."""

    async def test_a_step_while_a_round_is_looked_for(self) -> None:
        trainer = Trainer(31)
        oracle = watched(trainer, 700)
        train(trainer)
        before = Copy.of(oracle.live)
        changes = oracle.detector.changes()
        await anext(changes)
        with pytest.raises(InputError, match="while the weights are being published") as caught:
            train(trainer)
        assert caught.value.code == "bad_argument"
        assert before.wrong(Copy.of(oracle.live)) == []
        await changes.aclose()
        await oracle.abort()
        train(trainer)
        found = await oracle.publish()
        assert found.sent == found.changed > 0

    async def test_whole_weights_that_moved_meanwhile(self) -> None:
        trainer = Trainer(32)
        oracle = watched(trainer, 700)
        await oracle.take_whole()
        whole = oracle.detector.whole
        array, _ = whole.table.places["wide"]
        chunk, box = next(iter(whole.table.arrays[array].grid.boxes()))
        assert (await whole.read(array, chunk)).shape == box.size
        with torch.no_grad():
            trainer.tensors["wide"].add_(1)
        with pytest.raises(InputError, match="changed while they were being published"):
            await whole.read(array, chunk)
        with pytest.raises(InputError, match="changed while they were being published"):
            async for _ in oracle.detector.everything():
                pass
        await oracle.abort()
        await oracle.publish()

    async def test_the_whole_of_no_round(self) -> None:
        oracle = watched(Trainer(33))
        with pytest.raises(ValueError, match="no round is open"):
            _ = oracle.detector.whole
        with pytest.raises(ValueError, match="no round is open"):
            await anext(oracle.detector.everything())

    async def test_a_tensor_of_two_optimizers(self) -> None:
        trainer = Trainer(34)
        oracle = watched(trainer)
        detector: Any = oracle.detector
        other = torch.optim.AdamW([trainer.tensors["norm"]])
        with pytest.raises(InputError, match="tensor 'norm' is a parameter of two optimizers"):
            detector.attach(other)
        assert not other._optimizer_step_pre_hooks
        with pytest.raises(InputError, match="is no optimizer"):
            detector.attach([other, "other"])
        assert not other._optimizer_step_pre_hooks
        train(trainer)
        found = await oracle.publish()
        assert found.sent == found.changed

    async def test_a_closed_one_has_let_go(self) -> None:
        trainer = Trainer(35)
        oracle = watched(trainer)
        train(trainer)
        oracle.detector.close()
        for optimizer in (trainer.first, trainer.second):
            assert not optimizer._optimizer_step_pre_hooks
            assert not optimizer._optimizer_step_post_hooks
        train(trainer, 3)
        await oracle.publish()
