"""What an attached optimizer cannot be inverted for is refused with a reason, or sent whole, or copied."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

from deltastore.errors import InputError
from deltastore.stream import AsyncStream
from tests.doubles.stores import memory_store

from .attached import Attached, parameter


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deltastore.detect")


class TestWhatCannotBeUsed:
    """It is refused with a reason, or sent whole, or a copy is kept; and the log says so."""

    @pytest.mark.parametrize("given", [None, 3, "adamw", [1], object()])
    async def test_what_is_no_optimizer(self, given: Any) -> None:
        run = await Attached.create()
        with pytest.raises(InputError, match="is no optimizer") as caught:
            await run.writer.attach(given)
        assert caught.value.code == "bad_argument"
        run.train()
        assert (await run.publish_exactly()).certificate is None

    @pytest.mark.parametrize("opened", [False, True])
    async def test_a_tensor_of_two_optimizers(self, opened: bool) -> None:
        run = await Attached.create(opened=opened)
        other = torch.optim.SGD([run.params[1]], lr=0.1)
        with pytest.raises(InputError, match="tensor 'b' is a parameter of two optimizers, AdamW and SGD"):
            await run.writer.attach([other] if opened else [run.optimizer, other])
        assert not other._optimizer_step_pre_hooks
        run.train(2)
        published = await run.publish_exactly()
        assert (published.certificate is not None) == opened
        with pytest.raises(InputError, match="two optimizers"):
            await run.stream.writer(run.tensors, cast=True, optimizer=[run.optimizer, other])
        assert not other._optimizer_step_pre_hooks
        await run.writer.close()

    async def test_a_tensor_of_two_parameters(self) -> None:
        run = await Attached.create()
        same = torch.nn.Parameter(run.params[0].detach().view(-1))
        with pytest.raises(InputError, match="lies in parameter 0 of group 0 and parameter 1 of group 0"):
            await run.writer.attach(torch.optim.AdamW([run.params[0], same]))
        run.train()
        await run.publish_exactly()

    @pytest.mark.parametrize(
        ("kind", "options", "reason"),
        [
            (torch.optim.SGD, {"momentum": 0.9}, "SGD does not step as AdamW does"),
            (torch.optim.RMSprop, {}, "RMSprop does not step as AdamW does"),
            (torch.optim.NAdam, {}, "NAdam does not step as AdamW does"),
        ],
    )
    async def test_other_optimizers_are_named_and_a_copy_is_kept(
        self, kind: Any, options: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        run = await Attached.create(kind=kind, opened=True, **options)
        (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert "2 tensors ('a', 'b')" in warning.message
        assert reason in warning.message
        assert "a copy of what was published is kept instead" in warning.message
        caplog.clear()
        for count in (1, 3):
            run.train(count)
            published = await run.publish_exactly()
            assert published.certificate is not None
            assert published.certificate.inverted == 0
        assert [record for record in caplog.records if record.levelno == logging.WARNING] == []
        await run.writer.close()

    @pytest.mark.parametrize(
        "options",
        [{"amsgrad": True}, {"maximize": True}, {"weight_decay": 0.5}, {"lr": 0.0}, {"foreach": True}],
    )
    async def test_what_is_known_of_adamw_is_inverted(self, options: dict[str, Any]) -> None:
        run = await Attached.create(opened=True, **options)
        for count in (1, 3):
            run.train(count)
            published = await run.publish_exactly()
            assert published.certificate is not None
            assert (published.certificate.inverted, published.certificate.unexplained) == (count * 6300, 0)
        await run.writer.close()

    @pytest.mark.parametrize(
        ("harm", "reason"),
        [
            (lambda state: state.clear(), "its step counter was changed after the step"),
            (lambda state: state.pop("exp_avg"), "its state has no exp_avg"),
            (lambda state: state.pop("exp_avg_sq"), "its state has no exp_avg_sq"),
            (lambda state: state.update(exp_avg=torch.zeros(3, 3)), "exp_avg of tensor 'a' has shape [3, 3]"),
            (
                lambda state: state.update(exp_avg_sq=state["exp_avg_sq"].bfloat16()),
                "its moments are bfloat16, not FP32",
            ),
            (
                lambda state: state.update(step=torch.tensor(7.5)),
                "its step counter was changed after the step",
            ),
            (
                lambda state: state.update(exp_avg=torch.empty(70, 60, device="meta")),
                "its moments are of type Tensor, not plain tensors",
            ),
        ],
    )
    async def test_a_state_that_is_missing_or_of_something_else(
        self, harm: Callable[[Any], Any], reason: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        run = await Attached.create(opened=True)
        run.train()
        await run.publish_exactly()
        run.train()
        state = dict(run.optimizer.state[run.params[0]])
        harm(run.optimizer.state[run.params[0]])
        published = await run.publish()
        assert published.certificate is not None
        assert published.certificate.inverted == 2100
        assert published.certificate.unexplained == 3
        assert reason in caplog.records[-1].message
        assert caplog.records[-1].levelno == logging.WARNING
        run.optimizer.state[run.params[0]].clear()
        run.optimizer.state[run.params[0]].update(state)
        run.train(2)
        await run.publish_exactly()
        await run.writer.close()

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
    @pytest.mark.parametrize("name", ["lr", "eps", "weight_decay"])
    async def test_hyper_parameters_that_are_no_numbers(
        self, name: str, bad: float, caplog: pytest.LogCaptureFixture
    ) -> None:
        run = await Attached.create(opened=True)
        run.train()
        await run.publish_exactly()
        run.optimizer.param_groups[0][name] = bad
        run.train()
        published = await run.publish()
        assert published.certificate is not None
        assert published.certificate.inverted == 0
        assert f"{name} is {bad}" in caplog.records[-1].message
        await run.writer.close()

    async def test_weights_in_bf16_have_no_masters(self, caplog: pytest.LogCaptureFixture) -> None:
        half = torch.nn.Parameter(parameter(3000).detach().bfloat16())
        optimizer = torch.optim.AdamW([half], lr=1e-2)
        store = memory_store()
        stream = await AsyncStream.create(store, {"w": half})
        async with await stream.writer({"w": half}, optimizer=optimizer) as writer:
            assert "there are no FP32 master weights" in caplog.records[-1].message
            before = half.detach().clone()
            for _ in range(3):
                half.grad = torch.ones_like(half)
                optimizer.step()
            assert (await writer.publish()).changed == int((half.detach() != before).sum()) > 0

    async def test_weights_whose_memory_was_replaced(self) -> None:
        run = await Attached.create(opened=True)
        run.train()
        await run.publish_exactly()
        run.params[0].data = run.params[0].data.clone()
        run.train(2)
        with pytest.raises(InputError, match="'a'") as caught:
            await run.writer.publish()
        assert caught.value.code == "wrong_memory"
        await run.writer.close()

    async def test_a_parameter_that_is_added_later_is_followed(self) -> None:
        run = await Attached.create()
        run.optimizer = torch.optim.AdamW(run.params[:1], lr=1e-4)
        await run.writer.attach(run.optimizer)
        run.train()
        await run.publish_exactly()
        run.optimizer.add_param_group({"params": run.params[1:]})
        for _ in range(2):
            run.train()
            published = await run.publish()
            assert published.certificate is not None
            assert published.certificate.inverted == 6300
            assert published.certificate.unexplained == 0
        await run.writer.close()
