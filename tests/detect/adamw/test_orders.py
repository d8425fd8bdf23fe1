"""The interval of an inversion holds the old weight, whatever order of arithmetic the optimizer had."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from deltastore.detect.adamw.bound import covers_tiny_squares
from deltastore.detect.adamw.hyper import Hyper
from tests.detect.adamw.intervals import COUNT, case, check, hypers, moments, update_of, weights
from tests.doubles.optimizers import (
    DOUBLE_ORDERS,
    SINGLE_ORDERS,
    ApexOrderAdamW,
    Floats,
    Machine,
    Order,
    apex,
    capturable,
    torch_cpu,
    torch_cuda,
    torch_tail,
)

MACHINES = (
    Machine(),
    Machine(fused=True),
    Machine(flush=True),
    Machine(fused=True, power="squared"),
    Machine(power="host"),
    Machine(fused=True, flush=True, fast=True),
    Machine(fast=True, power="squared"),
)


def name_of(order: Order) -> str:
    return order.__name__


@pytest.mark.parametrize("order", DOUBLE_ORDERS, ids=name_of)
@pytest.mark.parametrize("flush", [False, True])
def test_orders_with_double_coefficients(order: Order, flush: bool) -> None:
    random = np.random.default_rng(5)
    machine = Machine(flush=flush and order is not torch_tail)
    for hyper in hypers(1, 150, single=False):
        old, mean, square = case(random, hyper, careful=flush)
        with np.errstate(all="ignore"):
            check(old, order(machine, hyper, old, mean, square), mean, square, hyper)


@pytest.mark.parametrize("order", SINGLE_ORDERS, ids=name_of)
@pytest.mark.parametrize("machine", MACHINES, ids=[str(number) for number in range(len(MACHINES))])
def test_orders_with_single_coefficients(order: Order, machine: Machine) -> None:
    random = np.random.default_rng(6)
    machine = replace(machine, random=np.random.default_rng(14))
    for hyper in hypers(2, 60, single=True):
        old, mean, square = case(random, hyper, careful=True)
        with np.errstate(all="ignore"):
            check(old, order(machine, hyper, old, mean, square), mean, square, hyper)


@pytest.mark.parametrize("order", DOUBLE_ORDERS, ids=name_of)
def test_the_bound_of_single_coefficients_holds_for_double_ones_too(order: Order) -> None:
    random = np.random.default_rng(7)
    for hyper in hypers(3, 40, single=True):
        old, mean, square = case(random, hyper, careful=False)
        with np.errstate(all="ignore"):
            check(old, order(Machine(), hyper, old, mean, square), mean, square, hyper)


@pytest.mark.parametrize("order", [torch_cpu, torch_cuda], ids=name_of)
def test_a_learning_rate_of_0_gives_the_weight_itself(order: Order) -> None:
    random = np.random.default_rng(8)
    hyper = Hyper(0.0, 0.9, 0.999, 1e-8, 0.1, 3)
    old, mean, square = case(random, hyper, careful=False)
    found = check(old, order(Machine(), hyper, old, mean, square), mean, square, hyper)
    assert (found.before == old).all()
    assert not found.uncertain[np.abs(old) > 1e-30].any()


@pytest.mark.parametrize(
    ("machine", "order", "single"),
    [(Machine(), torch_cpu, False), (Machine(), apex, True), (Machine(), capturable, True)],
    ids=["torch", "apex", "capturable"],
)
def test_the_bound_is_no_wider_than_three_times_what_happens(
    machine: Machine, order: Order, single: bool
) -> None:
    """And so the tests above look closely enough: an interval of a third misses old weights."""
    random = np.random.default_rng(9)
    hyper = Hyper(1e-6, 0.9, 0.999, 1e-8, 0.01, 100, single=single)
    for chosen in (hyper, replace(hyper, lr=1e-3, weight_decay=0.1)):
        old = (random.standard_normal(1 << 18) * 0.02).astype(np.float32)
        mean = (random.standard_normal(1 << 18) * 1e-3).astype(np.float32)
        square = (mean * mean * np.float32(4) + np.float32(1e-9)).astype(np.float32)
        theta = order(machine, chosen, old, mean, square)
        assert check(old, theta, mean, square, chosen).part(old) > 0.33


@pytest.mark.parametrize(("single", "decay"), [(False, 0.0), (False, 0.01), (True, 0.01), (True, 0.1)])
def test_few_elements_are_uncertain(single: bool, decay: float) -> None:
    random = np.random.default_rng(10)
    count = 1 << 21
    old = (random.standard_normal(count) * 0.02).astype(np.float32)
    mean = (random.standard_normal(count) * 1e-4).astype(np.float32)
    square = (random.random(count) * 1e-7).astype(np.float32)
    for step in (1, 100, 10_000):
        hyper = Hyper(1e-6, 0.9, 0.999, 1e-8, decay, step, single=single)
        order = apex if single else torch_cpu
        found = check(old, order(Machine(), hyper, old, mean, square), mean, square, hyper)
        assert 0 < np.count_nonzero(found.uncertain) < 300e-6 * count


KINDS: dict[str, dict[str, Any]] = {
    "single": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "amsgrad": {"foreach": False, "amsgrad": True},
    "fused amsgrad": {"fused": True, "amsgrad": True},
    "maximize": {"foreach": True, "maximize": True},
}


def step_of(optimizer: torch.optim.Optimizer, p: torch.Tensor) -> tuple[Floats, Floats, Floats, Floats]:
    """One step: weights before and after, and the moments of its last line."""
    old = p.detach().numpy().copy()
    optimizer.step()
    state = optimizer.state[p]
    square = state.get("max_exp_avg_sq", state["exp_avg_sq"])
    return old, p.detach().numpy().copy(), state["exp_avg"].numpy(), square.numpy()


def parameter(random: np.random.Generator, hyper: Hyper) -> tuple[torch.Tensor, Floats]:
    """A parameter of an odd length, so that a fused kernel has a tail, and a gradient for it."""
    mean, square = moments(random, COUNT + 5)
    mean[3::100] = 0.0
    old = weights(random, update_of(hyper, mean, square))
    return torch.nn.Parameter(torch.from_numpy(old.copy())), mean


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.Adam])
def test_torch_itself(kind: str, optimizer: Any) -> None:
    torch.set_num_threads(1)
    random = np.random.default_rng(12)
    for hyper in hypers(4, 16, single=False):
        p, grad = parameter(random, hyper)
        betas = (hyper.beta1, hyper.beta2)
        made = optimizer(
            [p], hyper.lr, betas=betas, eps=hyper.eps, weight_decay=hyper.weight_decay, **KINDS[kind]
        )
        chosen = replace(hyper, bias_correction=True)
        if optimizer is torch.optim.Adam:
            chosen = replace(chosen, weight_decay=0.0)
        for step in (1, 2, chosen.step + 2):
            p.grad = torch.from_numpy(grad.copy())
            if step > 2:
                made.state[p]["step"].fill_(float(step - 1))
            with np.errstate(all="ignore"):
                check(*step_of(made, p), replace(chosen, step=step))


@pytest.mark.parametrize("kind", [{}, {"adam_w_mode": False}, {"bias_correction": False}])
def test_an_optimizer_of_apexs_order(kind: dict[str, Any]) -> None:
    random = np.random.default_rng(13)
    for hyper in hypers(5, 40, single=True):
        chosen = replace(hyper, bias_correction=kind.get("bias_correction", True))
        p, grad = parameter(random, hyper)
        made = ApexOrderAdamW(
            [p], chosen.lr, (chosen.beta1, chosen.beta2), chosen.eps, chosen.weight_decay, **kind
        )
        if not made.adam_w_mode:
            chosen = replace(chosen, weight_decay=0.0)
        for step in (1, 2, hyper.step + 2):
            made.param_groups[0]["step"] = step - 1
            p.grad = torch.from_numpy(grad.copy())
            old, theta, mean, square = step_of(made, p)
            if not covers_tiny_squares(replace(chosen, step=step)):
                kept = (square >= 2.0**-126) | (square == 0)
                old, theta, mean, square = old[kept], theta[kept], mean[kept], square[kept]
            with np.errstate(all="ignore"):
                check(old, theta, mean, square, replace(chosen, step=step))
