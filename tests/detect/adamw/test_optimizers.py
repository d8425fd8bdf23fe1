from __future__ import annotations

from typing import Any

import pytest
import torch

from deltastore.detect.adamw.arithmetic import Arithmetic, arithmetic_of, why_not_adamw
from deltastore.detect.adamw.masters import why_refused
from deltastore.detect.adamw.optimizers import optimizers_in
from deltastore.errors import InputError
from tests.detect.adamw.stepping import give_gradients, parameters
from tests.doubles.optimizers import ApexOrderAdamW


class Wrapper:
    """Has what it is given as attributes."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def adamw() -> torch.optim.AdamW:
    return torch.optim.AdamW(parameters((3,)))


def test_an_optimizer_is_what_it_is() -> None:
    optimizer = adamw()
    assert optimizers_in(optimizer) == (optimizer,)


def test_wrappers_are_opened_and_each_optimizer_is_found_once() -> None:
    first, second, third = adamw(), adamw(), adamw()
    megatron = Wrapper(optimizer=first, param_groups=first.param_groups, state=first.state)
    hybrid = Wrapper(sub_optimizers=[second, third])
    chained = Wrapper(chained_optimizers=[megatron, Wrapper(optimizer=hybrid)])
    assert optimizers_in([chained, (second, Wrapper(optim=first))]) == (first, second, third)


def test_a_wrapper_with_hooks_of_its_own_is_opened_too() -> None:
    inner = adamw()
    outer = adamw()
    outer.optimizer = inner  # type: ignore[attr-defined]
    assert optimizers_in(outer) == (inner,)


def test_an_optimizer_that_names_another_thing_is_itself() -> None:
    named = adamw()
    named.optimizer = "adamw"  # type: ignore[attr-defined]
    assert optimizers_in(named) == (named,)


def test_a_wrapper_of_itself_ends() -> None:
    inner = adamw()
    chain: list[object] = [inner]
    circle = Wrapper(optimizers=chain)
    chain.append(circle)
    assert optimizers_in(circle) == (inner,)


@pytest.mark.parametrize(
    "given", [[], Wrapper(chained_optimizers=[]), Wrapper(optimizer=None), [Wrapper(optimizer=None)]]
)
def test_a_process_without_parameters_has_no_optimizers(given: object) -> None:
    assert optimizers_in(given) == ()


@pytest.mark.parametrize("given", [None, 3, Wrapper(optimizer=4), [Wrapper(step=1)], [[adamw(), "x"]]])
def test_what_is_no_optimizer_is_refused_by_type(given: object) -> None:
    with pytest.raises(InputError, match=r"a (NoneType|int|Wrapper|str) is no optimizer") as caught:
        optimizers_in(given)
    assert caught.value.code == "bad_argument"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Arithmetic(True, False, True)),
        ({"fused": True}, Arithmetic(True, False, True)),
        ({"foreach": True, "maximize": True}, Arithmetic(True, False, True)),
        ({"amsgrad": True}, Arithmetic(True, False, True)),
        ({"lr": torch.tensor(1e-3)}, Arithmetic(True, True, True)),
        ({"betas": (torch.tensor(0.9), torch.tensor(0.99))}, Arithmetic(True, True, True)),
        ({"capturable": True}, Arithmetic(True, True, True)),
        ({"differentiable": True}, Arithmetic(True, True, True)),
    ],
)
def test_the_arithmetic_of_torch(options: dict[str, Any], expected: Arithmetic) -> None:
    optimizer = torch.optim.AdamW(parameters((3,)), **options)
    assert why_not_adamw(optimizer, optimizer.param_groups[0]) == ""
    assert arithmetic_of(optimizer, optimizer.param_groups[0]) == expected


def test_adam_adds_its_decay_to_the_gradient() -> None:
    optimizer = torch.optim.Adam(parameters((3,)), weight_decay=0.1)
    assert arithmetic_of(optimizer, optimizer.param_groups[0]) == Arithmetic(False, False, True)


def test_a_group_of_an_older_torch_says_nothing_of_its_decay() -> None:
    optimizer = adamw()
    group = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8}
    assert arithmetic_of(optimizer, group).decoupled


@pytest.mark.parametrize("adam_w_mode", [False, True])
@pytest.mark.parametrize("bias_correction", [False, True])
def test_the_arithmetic_of_apex(adam_w_mode: bool, bias_correction: bool) -> None:
    optimizer = ApexOrderAdamW(parameters((3,)), adam_w_mode=adam_w_mode, bias_correction=bias_correction)
    expected = Arithmetic(adam_w_mode, True, bias_correction)
    assert arithmetic_of(optimizer, optimizer.param_groups[0]) == expected


def test_a_step_of_its_own_is_not_torch_arithmetic() -> None:
    class OwnAdamW(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    class SameAdamW(torch.optim.AdamW):
        pass

    own, same = OwnAdamW(parameters((3,))), SameAdamW(parameters((3,)))
    assert arithmetic_of(own, own.param_groups[0]).single
    assert not arithmetic_of(same, same.param_groups[0]).single


@pytest.mark.parametrize(
    "kind",
    ["SGD", "NAdam", "RAdam", "Adamax", "Adagrad", "RMSprop", "Adafactor", "ASGD", "Rprop", "SparseAdam"],
)
def test_other_optimizers_of_torch_are_named(kind: str) -> None:
    optimizer = getattr(torch.optim, kind)(parameters((3,)))
    assert why_not_adamw(optimizer, optimizer.param_groups[0]).startswith(
        f"{kind} does not step as AdamW does: "
    )


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("AdamW8bit", "its moments are quantised"),
        ("PagedAdamW4bit", "its moments are quantised"),
        ("AdamWScheduleFree", "its weights are averages"),
        ("FusedLAMB", "its updates are of other arithmetic"),
        ("DistributedFusedLAMB", "its updates are of other arithmetic"),
        ("MuonClip", "its updates are of other arithmetic"),
        ("Lion", "its updates are of other arithmetic"),
    ],
)
def test_other_classes_with_the_same_settings_are_named(kind: str, reason: str) -> None:
    optimizer = type(kind, (ApexOrderAdamW,), {})(parameters((3,)))
    assert (
        why_not_adamw(optimizer, optimizer.param_groups[0]) == f"{kind} does not step as AdamW does: {reason}"
    )


def test_an_optimizer_of_both_kinds_says_of_each_group_which() -> None:
    both = type("MuonWithAdam", (ApexOrderAdamW,), {})(
        [{"params": parameters((3,)), "use_muon": False}, {"params": parameters((2, 2)), "use_muon": True}]
    )
    assert why_not_adamw(both, both.param_groups[0]) == ""
    assert why_not_adamw(both, both.param_groups[1]).startswith("Muon does not step as AdamW does: ")


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ({"betas": (0.9, 0.99), "eps": 1e-8}, "its groups have no lr"),
        ({"lr": 0.1, "betas": (0.9, 0.99)}, "its groups have no eps"),
        ({"lr": 0.1, "betas": 0.9, "eps": 1e-8}, "it has not two betas"),
        ({"lr": 0.1, "betas": (0.9, 0.99, 0.999), "eps": 1e-8}, "it has not two betas"),
    ],
)
def test_a_group_without_the_settings_is_not_adamw(group: dict[str, Any], reason: str) -> None:
    assert why_not_adamw(adamw(), group) == f"AdamW does not step as AdamW does: {reason}"


@pytest.mark.parametrize("element", [torch.bfloat16, torch.float16, torch.float64])
def test_parameters_that_are_not_fp32_are_refused(element: torch.dtype) -> None:
    param = torch.nn.Parameter(torch.zeros(3, dtype=element))
    name = str(element).removeprefix("torch.")
    reason = why_refused(torch.optim.AdamW([param]), 0, param)
    assert reason == f"its parameters are {name}: there are no FP32 master weights"
    inside = ApexOrderAdamW([param])
    inside.master_weights = True  # type: ignore[attr-defined]
    expected = f"its parameters are {name}; their master weights are kept inside ApexOrderAdamW"
    assert why_refused(inside, 0, param) == expected


def test_complex_parameters_are_refused() -> None:
    param = torch.nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    assert why_refused(torch.optim.AdamW([param]), 0, param) == "its parameters are complex"


def test_split_and_inner_master_weights_are_refused() -> None:
    (param,) = parameters((3,))
    optimizer = ApexOrderAdamW([param])
    assert why_refused(optimizer, 0, param) == ""
    optimizer.state[param]["master_param"] = torch.zeros(3)
    assert why_refused(optimizer, 0, param) == "its master weights are kept inside ApexOrderAdamW"
    optimizer.store_param_remainders = True  # type: ignore[attr-defined]
    assert why_refused(optimizer, 0, param) == "its master weights are split into BF16 weights and remainders"


def test_moments_that_are_not_fp32_are_refused() -> None:
    (param,) = parameters((3,))
    optimizer = torch.optim.AdamW([param])
    assert why_refused(optimizer, 0, param) == ""
    give_gradients([param])
    optimizer.step()
    assert why_refused(optimizer, 0, param) == ""
    state = optimizer.state[param]
    state["exp_avg_sq"] = state["exp_avg_sq"].bfloat16()
    assert why_refused(optimizer, 0, param) == "its moments are bfloat16, not FP32"
    state["exp_avg"] = Quantised(torch.zeros(3))
    assert why_refused(optimizer, 0, param) == "its moments are of type Quantised, not plain tensors"
    del state["exp_avg"]
    assert why_refused(optimizer, 0, param) == "its state has no exp_avg"


def test_moments_that_will_not_be_fp32_are_refused_beforehand() -> None:
    (param,) = parameters((3,))
    optimizer = ApexOrderAdamW([param])
    optimizer.name_to_dtype_map = {"exp_avg": torch.float32, "exp_avg_sq": torch.float32}  # type: ignore[attr-defined]
    assert why_refused(optimizer, 0, param) == ""
    optimizer.name_to_dtype_map["exp_avg"] = torch.bfloat16  # type: ignore[attr-defined]
    assert why_refused(optimizer, 0, param) == "its moments are bfloat16, not FP32"


class Quantised(torch.Tensor):
    """A tensor that stands for others, as libraries of quantised optimizers have."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("fused", "device", "single"), [(True, "meta", True), (True, "cpu", False), (None, "meta", False)]
)
def test_a_fused_step_on_a_device_corrects_the_bias_in_fp32(
    fused: bool | None, device: str, single: bool
) -> None:
    """Torch refuses a fused optimizer on what is no device, so the group is made by hand."""
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(3, device=device))])
    group = {**optimizer.param_groups[0], "fused": fused}
    assert arithmetic_of(optimizer, group).single == single
