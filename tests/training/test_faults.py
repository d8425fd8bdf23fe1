"""Not all is as the optimizer says: versions grow, engines stay exact to the bit, and the log says why."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from deltastore.detect.adamw.capture import Capture
from deltastore.detect.adamw.hyper import Hyper
from tests.training.run import Run, Told, rate

WRONG = "a hyper-parameter is probably wrong, or something else wrote to the weights"


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "deltastore.detect")


def said(caplog: pytest.LogCaptureFixture) -> str:
    """What the log says of the last version; forgets it."""
    last = caplog.records[-1].getMessage()
    caplog.clear()
    return last


def is_sound(told: Told) -> bool:
    """Whether nothing, or as good as nothing, was sent in vain."""
    return told.sent - told.changed <= 2048 * told.certificate.unexplained <= 2 * 2048


async def warmed_up(model: str = "qwen3", **options: Any) -> Run:
    """A run that has published steps without a fault."""
    run = await Run.start(model, **(options or {"fused": True}))
    for _ in range(4):
        run.step()
        assert is_sound(await run.publish())
    return run


def captured(monkeypatch: pytest.MonkeyPatch, as_: Callable[[Hyper], Hyper]) -> None:
    """Every step is taken for one with other hyper-parameters than it had."""
    true = Capture.hyper
    monkeypatch.setattr(Capture, "hyper", lambda self, param, step: as_(true(self, param, step)))


@pytest.mark.parametrize(("model", "every"), [("qwen3", 4), ("qwen3-moe", 1)])
@pytest.mark.parametrize(
    "as_",
    [
        lambda hyper: replace(hyper, lr=rate(hyper.step)),
        lambda hyper: replace(hyper, lr=1.5 * hyper.lr),
        lambda hyper: replace(hyper, lr=0.0),
        lambda hyper: replace(hyper, step=hyper.step + 1),
        lambda hyper: replace(hyper, beta2=0.999),
        lambda hyper: replace(hyper, weight_decay=0.3 - hyper.weight_decay),
    ],
    ids=["the scheduler moved first", "rate", "no rate", "step", "beta", "decay"],
)
async def test_hyper_parameters_that_are_wrong(
    as_: Callable[[Hyper], Hyper],
    model: str,
    every: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = await warmed_up(model)
    with monkeypatch.context() as patch:
        captured(patch, as_)
        for _ in range(2):
            run.step(every)
            told = await run.publish()
            assert told.sent > told.changed > 0
            assert told.certificate.unexplained > 0
            assert WRONG in said(caplog)
    run.step(every)
    assert is_sound(await run.publish())
    assert WRONG not in said(caplog)
    await run.close()


@pytest.mark.parametrize("every", [1, 4, 16])
async def test_weights_that_are_edited_between_steps(every: int, caplog: pytest.LogCaptureFixture) -> None:
    run = await warmed_up()
    weight = run.weights["model.layers.1.mlp.up_proj.weight"].detach()
    run.step(every)
    weight[3, 5] += 1.0
    told = await run.publish()
    assert told.certificate.unexplained == 1
    assert 0 < told.sent - told.changed < 2048
    assert "1 that nothing explains" in said(caplog)
    run.step(every)
    assert is_sound(await run.publish())
    await run.close()


async def test_an_edit_before_further_steps(caplog: pytest.LogCaptureFixture) -> None:
    """What was edited is looked at before the next step, and is not known; nor is it lost."""
    run = await warmed_up()
    run.step()
    run.weights["model.layers.0.mlp.up_proj.weight"].detach()[:2] *= 1.25
    run.step(3)
    told = await run.publish()
    assert told.certificate.unexplained > 0
    assert " that nothing explains" in said(caplog)
    run.step()
    assert is_sound(await run.publish())
    await run.close()


async def test_a_version_without_a_step() -> None:
    run = await warmed_up()
    for _ in range(2):
        told = await run.publish()
        assert (told.changed, told.sent, told.nbytes) == (0, 0, 0)
    run.backward()  # what it would have moved by, and it is not called
    assert (await run.publish()).sent == 0
    run.step()
    assert is_sound(await run.publish())
    await run.close()


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}])
async def test_steps_that_a_scaler_skips(options: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """The fused optimizer is called and leaves everything as it is; others are not called at all."""
    run = await warmed_up(**options)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for overflows in (True, False, True, True):
        for _ in range(2):
            run.backward(scaler)
            if overflows:
                run.weights["model.norm.weight"].grad[3] = float("inf")
            scaler.step(run.optimizer)
            scaler.update()
            run.taken += 1
        told = await run.publish()
        assert is_sound(told)
        assert (told.sent == 0) == overflows
        assert WRONG not in said(caplog)
    await run.close()


async def test_a_step_that_was_counted_and_not_taken() -> None:
    """The counter moved, the weights did not: their blocks are as they were, whatever the inversion says."""
    run = await warmed_up()
    kept = {name: param.detach().clone() for name, param in run.weights.items()}
    run.step()
    with torch.no_grad():
        for name, param in run.weights.items():
            param.copy_(kept[name])
    told = await run.publish()
    assert (told.changed, told.sent) == (0, 0)
    run.step()
    assert is_sound(await run.publish())
    await run.close()


async def test_the_same_state_loaded_again(caplog: pytest.LogCaptureFixture) -> None:
    """Other memory, the same numbers: nothing is lost, before a version or before a step."""
    run = await warmed_up()
    for _ in range(3):
        run.step()
        run.optimizer.load_state_dict(copy.deepcopy(run.optimizer.state_dict()))
        assert is_sound(await run.publish())
        run.optimizer.load_state_dict(copy.deepcopy(run.optimizer.state_dict()))
        run.step(2)
        assert is_sound(await run.publish())
        assert WRONG not in said(caplog)
    await run.close()


async def test_an_older_state_loaded(caplog: pytest.LogCaptureFixture) -> None:
    run = await warmed_up()
    older = copy.deepcopy(run.optimizer.state_dict())
    run.step(2)
    assert is_sound(await run.publish())
    run.step()
    run.optimizer.load_state_dict(copy.deepcopy(older))
    told = await run.publish()
    assert told.sent > told.changed > 0
    assert "its step counter was changed after the step" in said(caplog)
    run.optimizer.load_state_dict(copy.deepcopy(older))
    run.step()
    assert is_sound(await run.publish())
    await run.close()


async def test_a_checkpoint_loaded(caplog: pytest.LogCaptureFixture) -> None:
    """Weights and state of an earlier step, in place: what they are not is sent, and training goes on."""
    run = await warmed_up()
    weights = {name: param.detach().clone() for name, param in run.weights.items()}
    state = copy.deepcopy(run.optimizer.state_dict())
    run.step(3)
    await run.publish()
    with torch.no_grad():
        for name, param in run.weights.items():
            param.copy_(weights[name])
    run.optimizer.load_state_dict(state)
    told = await run.publish()
    assert told.sent > told.changed > 0
    assert WRONG in said(caplog)
    run.step(2)
    assert is_sound(await run.publish())
    await run.close()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("moment", ["exp_avg", "exp_avg_sq"])
async def test_moments_that_are_no_moments(bad: float, moment: str, caplog: pytest.LogCaptureFixture) -> None:
    run = await warmed_up()
    state = run.optimizer.state[run.weights["model.layers.0.mlp.down_proj.weight"]]
    run.step()
    kept = state[moment].clone()
    state[moment][7, :5] = bad
    told = await run.publish()
    assert told.certificate.unexplained == 1
    assert "1 that nothing explains" in said(caplog)
    state[moment].copy_(kept)
    run.step()
    assert is_sound(await run.publish())
    await run.close()
