from __future__ import annotations

from typing import Any

import pytest
import torch

from deltastore.detect.adamw.attachment import Attachment, Held, Taken
from deltastore.detect.adamw.scalars import Scalars
from tests.detect.adamw.stepping import Told, attach, bits, explains, parameters, step

SHAPES = ((64, 33), (1001,))
STILL = Taken(None, "its step counter did not move", False)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"lr": float("nan")}, "lr is nan"),
        ({"eps": float("inf")}, "eps is inf"),
        ({"eps": None}, "eps is nan"),
        ({"lr": "1/1000"}, "lr is nan"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0, less than 0"),
        ({"betas": (0.9, torch.zeros(2))}, "beta2 is nan"),
    ],
)
def test_settings_that_cannot_be_are_told(settings: dict[str, Any], reason: str) -> None:
    params = parameters(*SHAPES)
    attachment = attach(AdamWTold(params, Told.count, **settings), params)
    attachment.optimizer.step()
    assert attachment.taken(0) == Taken(None, reason, True)


class AdamWTold(Told):
    """By its name, its decay is decoupled."""


@pytest.mark.parametrize(
    ("by", "reason"),
    [
        (2, "its step counter moved by 2"),
        (-0.5, "its step counter is 0.5"),
        (-2, "its step counter is -1"),
        (float("nan"), "its step counter is nan"),
    ],
)
def test_counters_that_do_not_count_are_told(by: float, reason: str) -> None:
    params = parameters(*SHAPES)
    attachment = attach(Told(params, lambda it: it.count(by)), params)
    attachment.optimizer.step()
    assert attachment.taken(0) == Taken(None, reason, True)


def test_a_counter_of_fp32_ends() -> None:
    params = parameters(*SHAPES)
    optimizer = torch.optim.AdamW(params)
    attachment = attach(optimizer, params)
    step(attachment, params)
    optimizer.state[params[0]]["step"].fill_(1 << 24)
    step(attachment, params)
    assert attachment.taken(0) == Taken(None, "its step counter has reached its limit, 16777216", True)
    assert attachment.taken(1).hyper is not None


def test_counters_that_are_missing_are_told() -> None:
    params = parameters(*SHAPES)
    optimizer = Told(params, lambda _: None)
    for state in optimizer.state.values():
        del state["step"]
    attachment = attach(optimizer, params)
    optimizer.step()
    assert attachment.taken(0) == Taken(None, "its optimizer counts no steps", True)


def test_moments_that_are_missing_after_a_step_are_told() -> None:
    params = parameters(*SHAPES)
    optimizer = Told(params, Told.count)
    attachment = attach(optimizer, params)
    optimizer.step()
    del optimizer.state[params[0]]["exp_avg_sq"]
    assert attachment.taken(0) == Taken(None, "its state has no exp_avg_sq", True)
    assert attachment.taken(1).hyper is not None


def test_moments_that_the_first_step_makes_in_another_type_are_refused_from_then_on() -> None:
    params = parameters(*SHAPES)

    def act(it: Told) -> None:
        it.count()
        it.state[params[0]]["exp_avg"] = torch.zeros(64, 33, dtype=torch.bfloat16)

    optimizer = Told(params, act)
    optimizer.state.clear()
    optimizer.state.update({param: {"step": 0} for param in params})
    attachment = attach(optimizer, params)
    assert attachment.covered == {0, 1}
    optimizer.step()
    assert attachment.covered == {1}
    assert attachment.refused == {0: "its moments are bfloat16, not FP32"}
    assert attachment.taken(0) == Taken(None, "its moments are bfloat16, not FP32", True)
    assert attachment.taken(1) == Taken(None, "its state has no exp_avg", True)


def test_a_parameter_that_joins_within_the_step_is_told() -> None:
    params = parameters(*SHAPES)

    def act(it: Told) -> None:
        it.count()
        if len(it.param_groups) == 1:
            it.add_param_group({"params": params[1:]})

    optimizer = Told(params[:1], act)
    attachment = attach(optimizer, params)
    assert attachment.covered == {0}
    optimizer.step()
    assert attachment.covered == {0, 1}
    assert attachment.taken(1) == Taken(None, "it was in no group before or after the step", True)
    attachment.forget()
    optimizer.step()
    assert attachment.taken(1) == STILL


def test_a_step_that_raises_is_taken_as_far_as_it_counted() -> None:
    """What it really moved, the certificate knows."""
    params = parameters(*SHAPES)

    def act(it: Told) -> None:
        it.state[params[0]]["step"] += 1
        raise ArithmeticError("out of memory")

    optimizer = Told(params, act)
    asked: list[Taken] = []
    held = [Held(f"w{at}", param.detach()) for at, param in enumerate(params)]

    def before(it: Attachment) -> None:
        asked.extend((it.taken(0), it.taken(1)))
        it.forget()

    attachment = Attachment(optimizer, held, before=before, after=lambda _: asked.clear())
    with pytest.raises(ArithmeticError):
        optimizer.step()
    moved, still = attachment.taken(0), attachment.taken(1)
    assert (moved.moved, moved.hyper is not None, still) == (True, True, STILL)
    optimizer.act = Told.count
    asked.clear()
    attachment._after = lambda _: None
    optimizer.step()
    assert asked == [moved, STILL]
    assert [attachment.taken(at).hyper is not None for at in (0, 1)] == [True, True]


def test_a_step_that_raises_before_it_counts_is_none() -> None:
    params = parameters(*SHAPES)

    def act(it: Told) -> None:
        raise ArithmeticError("no gradient")

    optimizer = Told(params, act)
    attachment = attach(optimizer, params)
    with pytest.raises(ArithmeticError):
        optimizer.step()
    assert attachment.taken(0) == STILL
    optimizer.act = Told.count
    optimizer.step()
    assert attachment.taken(0).hyper is not None


def test_a_raised_step_that_nobody_dealt_with_makes_the_next_one_unknown() -> None:
    params = parameters(*SHAPES)

    def act(it: Told) -> None:
        it.count()
        raise ArithmeticError("out of memory")

    optimizer = Told(params, act)
    attachment = attach(optimizer, params)
    with pytest.raises(ArithmeticError):
        optimizer.step()
    optimizer.act = Told.count
    optimizer.step()
    assert attachment.taken(0) == Taken(None, "several steps were taken at once", True)


def test_a_step_within_a_step_is_one() -> None:
    class Outer(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    params = parameters(*SHAPES)
    torch.optim.Adam(params)  # from here on torch's own step calls the hooks too
    torch.optim.AdamW(params)
    calls: list[str] = []
    held = [Held(f"w{at}", param.detach()) for at, param in enumerate(params)]
    attachment = Attachment(
        Outer(params), held, before=lambda _: calls.append("before"), after=lambda _: calls.append("after")
    )
    before = [bits(param) for param in params]
    step(attachment, params)
    assert calls == ["before", "before", "after"]
    assert all(explains(attachment, at, old) for at, old in enumerate(before))


def test_a_step_that_was_dealt_with_before_it_ended_is_none() -> None:
    """As by a publish in a hook of the same step."""
    params = parameters(*SHAPES)

    def act(it: Told) -> None:
        attachment.forget()
        it.count()

    optimizer = Told(params, act)
    attachment = attach(optimizer, params)
    optimizer.step()
    assert attachment.taken(0) == Taken(None, "", False)


def test_a_parameter_that_a_group_has_twice_is_moved_twice() -> None:
    params = parameters(*SHAPES)
    optimizer = torch.optim.AdamW(params)
    optimizer.param_groups[0]["params"].append(params[0])
    attachment = attach(optimizer, params)
    step(attachment, params)
    assert attachment.taken(0) == Taken(None, "its step counter moved by 2", True)


def test_scalars_are_copies_and_say_what_is_none() -> None:
    counter = torch.tensor(3.0)
    wide = torch.tensor([5], dtype=torch.int64)
    scalars = Scalars([1, counter, None, wide, torch.zeros(2), "x", torch.tensor(0.5, dtype=torch.bfloat16)])
    counter += 1
    values = scalars.values
    assert values[:4] == (1.0, 3.0, None, 5.0)
    assert values[4] != values[4]
    assert values[5] != values[5]
    assert values[6] == 0.5
    assert Scalars([]).values == ()
