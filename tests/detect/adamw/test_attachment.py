from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from deltastore.detect.adamw.attachment import Attachment, Held, Taken, check_disjoint, describe_refused
from deltastore.errors import InputError
from tests.detect.adamw.stepping import attach, bits, explains, parameters, step
from tests.doubles.optimizers import ApexOrderAdamW

SHAPES = ((64, 33), (1001,), ())
STILL = Taken(None, "its step counter did not move", False)

KINDS: dict[str, Any] = {
    "single": lambda p: torch.optim.AdamW(p, foreach=False),
    "foreach": lambda p: torch.optim.AdamW(p, foreach=True, weight_decay=0.1),
    "fused": lambda p: torch.optim.AdamW(p, fused=True, betas=(0.9, 0.95)),
    "amsgrad": lambda p: torch.optim.AdamW(p, amsgrad=True),
    "maximize": lambda p: torch.optim.AdamW(p, maximize=True),
    "lr in a tensor": lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-3)),
    "betas in tensors": lambda p: torch.optim.AdamW(p, betas=(torch.tensor(0.9), torch.tensor(0.99))),
    "L2": lambda p: torch.optim.Adam(p, weight_decay=0.1),
    "Adam": lambda p: torch.optim.Adam(p, decoupled_weight_decay=True, weight_decay=0.1),
    "apex": lambda p: ApexOrderAdamW(p, weight_decay=0.1),
    "apex L2": lambda p: ApexOrderAdamW(p, weight_decay=0.1, adam_w_mode=False, bias_correction=False),
    "lr 0": lambda p: torch.optim.AdamW(p, lr=0.0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_is_captured_so_that_it_can_be_inverted(kind: str) -> None:
    params = parameters(*SHAPES)
    attachment = attach(KINDS[kind](params), params)
    assert attachment.covered == {0, 1, 2}
    assert not attachment.refused
    for number in range(3):
        before = [bits(param) for param in params]
        step(attachment, params, seed=number)
        assert all(explains(attachment, at, old) for at, old in enumerate(before))
        taken = attachment.taken(0)
        assert taken.hyper is not None
        assert taken.hyper.step == number + 1


def test_nothing_has_happened_before_the_first_step_and_after_it_was_dealt_with() -> None:
    params = parameters(*SHAPES)
    attachment = attach(torch.optim.AdamW(params), params)
    assert attachment.taken(0) == Taken(None, "", False)
    step(attachment, params)
    assert attachment.taken(0).moved
    attachment.forget()
    assert attachment.taken(0) == Taken(None, "", False)


def test_groups_have_their_own_settings() -> None:
    params = parameters(*SHAPES)
    settings: list[dict[str, Any]] = [
        {"lr": 1e-3, "weight_decay": 0.1},
        {"lr": 0.02, "eps": 1e-6},
        {"betas": (0.5, 0.75)},
    ]
    groups = [{"params": [param], **own} for param, own in zip(params, settings, strict=True)]
    attachment = attach(torch.optim.AdamW(groups, lr=1e-2, weight_decay=0.0), params)
    before = [bits(param) for param in params]
    step(attachment, params)
    hypers = [hyper for at in range(3) if (hyper := attachment.taken(at).hyper) is not None]
    assert [(hyper.lr, hyper.weight_decay) for hyper in hypers] == [(1e-3, 0.1), (0.02, 0.0), (1e-2, 0.0)]
    assert [hyper.eps for hyper in hypers] == [1e-8, 1e-6, 1e-8]
    assert [(hyper.beta1, hyper.beta2) for hyper in hypers][2] == (0.5, 0.75)
    assert all(explains(attachment, at, old) for at, old in enumerate(before))


def test_a_schedule_that_moves_on_after_the_step_changes_nothing() -> None:
    params = parameters(*SHAPES)
    optimizer = torch.optim.AdamW(params, lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda number: 1e-3 * (number + 1))
    attachment = attach(optimizer, params)
    for number in range(3):
        step(attachment, params)
        schedule.step()
        hyper = attachment.taken(0).hyper
        assert hyper is not None
        assert hyper.lr == 1e-3 * (number + 1)


def test_settings_that_change_within_the_step_are_those_from_before_it() -> None:
    params = parameters(*SHAPES)
    attachment = attach(torch.optim.AdamW(params, lr=torch.tensor(1e-3, dtype=torch.float64)), params)
    group = attachment.optimizer.param_groups[0]
    attachment.optimizer.register_step_post_hook(lambda *_: group["lr"].mul_(2))
    step(attachment, params)
    hyper = attachment.taken(0).hyper
    assert hyper is not None
    assert hyper.lr == 1e-3


def test_frozen_parameters_and_those_without_gradient_stand_still() -> None:
    params = parameters(*SHAPES)
    params[0].requires_grad_(False)
    attachment = attach(torch.optim.AdamW(params), params)
    step(attachment, params[1:2])
    assert attachment.covered == {0, 1, 2}
    assert [attachment.taken(at) for at in (0, 2)] == [STILL, STILL]
    assert attachment.taken(1).hyper is not None
    step(attachment, params[1:])
    params[1].grad = None
    step(attachment, params[2:])
    assert attachment.taken(1) == STILL


def test_a_counter_of_the_group_says_nothing_of_a_parameter_without_gradient() -> None:
    params = parameters(*SHAPES)
    attachment = attach(ApexOrderAdamW(params), params)
    step(attachment, params[:1])
    step(attachment, params[:1])
    assert attachment.taken(1) == Taken(None, "it has no gradient", False)
    before = bits(params[1])
    step(attachment, params[:2])  # its first gradient, in the third step of its group
    hyper = attachment.taken(1).hyper
    assert hyper is not None
    assert hyper.step == 3
    assert explains(attachment, 1, before)


@pytest.mark.parametrize("fused", [False, True])
def test_a_step_that_a_scaler_skips_is_none(fused: bool) -> None:
    params = parameters(*SHAPES)
    optimizer = torch.optim.AdamW(params, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    attachment = attach(optimizer, params)

    def scaled(factor: float) -> None:
        attachment.forget()
        optimizer.zero_grad()
        loss = sum((param * param).sum() for param in params)
        scaler.scale(loss * factor).backward()
        scaler.step(optimizer)
        scaler.update()

    scaled(float("inf"))
    assert attachment.taken(0) == (STILL if fused else Taken(None, "", False))
    before = bits(params[0])
    scaled(1.0)
    assert explains(attachment, 0, before)
    scaled(float("inf"))
    assert attachment.taken(0) == (STILL if fused else Taken(None, "", False))


def test_a_state_that_is_loaded_between_steps_is_the_one_that_counts() -> None:
    params = parameters(*SHAPES)
    attachment = attach(torch.optim.AdamW(params), params)
    optimizer = attachment.optimizer
    step(attachment, params)
    saved = copy.deepcopy(optimizer.state_dict())
    step(attachment, params)
    attachment.forget()
    optimizer.load_state_dict(saved)
    before = bits(params[0])
    step(attachment, params)
    hyper = attachment.taken(0).hyper
    assert hyper is not None
    assert hyper.step == 2
    assert explains(attachment, 0, before)
    assert attachment.moments(0)[0].data_ptr() == optimizer.state[params[0]]["exp_avg"].data_ptr()


def test_a_state_that_is_loaded_after_the_step_is_told() -> None:
    params = parameters(*SHAPES)
    attachment = attach(torch.optim.AdamW(params), params)
    step(attachment, params)
    saved = copy.deepcopy(attachment.optimizer.state_dict())
    step(attachment, params)
    attachment.optimizer.load_state_dict(saved)
    assert attachment.taken(0) == Taken(None, "its step counter was changed after the step", True)


def test_callers_are_called_before_anything_is_captured_and_after_everything() -> None:
    params = parameters(*SHAPES)
    optimizer = torch.optim.AdamW(params)
    seen: list[tuple[str, Taken]] = []
    attachment = Attachment(
        optimizer,
        [Held("w", params[0].detach())],
        before=lambda it: seen.append(("before", it.taken(0))),
        after=lambda it: seen.append(("after", it.taken(0))),
    )
    step(attachment, params)
    optimizer.step()
    assert [(word, taken.hyper and taken.hyper.step) for word, taken in seen[:3]] == [
        ("before", None),
        ("after", 1),
        ("before", 1),  # the step before can be asked about until the next one begins
    ]
    assert seen[3] == ("after", Taken(None, "several steps were taken at once", True))
    attachment.detach()
    attachment.detach()
    step(attachment, params)
    assert len(seen) == 4
    assert attachment.taken(0) == Taken(None, "", False)


def test_two_optimizers_of_one_tensor_are_told() -> None:
    params = parameters(*SHAPES)
    held = [Held(f"w{at}", param.detach()) for at, param in enumerate(params)]
    first, second, third = (
        Attachment(torch.optim.AdamW(some), held, before=lambda _: None, after=lambda _: None)
        for some in (params[:1], params[1:], params[1:2])
    )
    check_disjoint([first, second], held)
    check_disjoint([first, third], held)
    with pytest.raises(InputError, match="tensor 'w1' is a parameter of two optimizers, AdamW and AdamW"):
        check_disjoint([first, second, third], held)


def test_what_is_refused_is_described_once_for_each_reason() -> None:
    halves = [torch.nn.Parameter(torch.zeros(4, dtype=torch.bfloat16)) for _ in range(5)]
    params = parameters(*SHAPES)
    names = {f"h{at}": half for at, half in enumerate(halves)} | {"w": params[0], "buffer": torch.zeros(3)}
    attachment = attach(torch.optim.AdamW([*halves, *params]), names)
    assert attachment.covered == {5}
    assert describe_refused(attachment, {}) == [
        "AdamW: steps of 5 tensors ('h0', 'h1', 'h2', …) are not inverted: its parameters are bfloat16: "
        "there are no FP32 master weights"
    ]
    assert attachment.taken(0) == Taken(None, attachment.refused[0], False)
    assert attachment.taken(6) == Taken(None, "it is no parameter of it", False)
    step(attachment, [*halves, *params])
    assert attachment.taken(0).moved
    assert not attachment.taken(6).moved
    with pytest.raises(InputError, match="tensor 'h1' is no parameter of it"):
        attachment.moments(1)


def test_an_optimizer_of_another_kind_refuses_its_tensors() -> None:
    params = parameters(*SHAPES)
    attachment = attach(torch.optim.SGD(params), params)
    assert not attachment.covered
    reason = "SGD does not step as AdamW does: its updates are of other arithmetic"
    assert describe_refused(attachment, {}) == [
        f"SGD: steps of 3 tensors ('w0', 'w1', 'w2') are not inverted: {reason}"
    ]
    step(attachment, params)
    assert attachment.taken(2) == Taken(None, reason, True)


def test_what_is_no_optimizer_cannot_be_attached_to() -> None:
    with pytest.raises(InputError, match="a dict is no optimizer"):
        attach({}, [])
