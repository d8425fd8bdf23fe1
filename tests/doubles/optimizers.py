"""AdamW steps in every order of FP32 arithmetic that is in use, and an optimizer of Apex's order.

An order takes a ``Machine`` (which rounds), hyper-parameters, the weights before the step and both moments
after it, and gives the weights after it. It sees what an optimizer of that kind sees of its last line on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from deltastore.detect.adamw.hyper import Hyper

Floats = NDArray[np.float32]
Number = Floats | np.float32
F = np.float32


@dataclass(frozen=True)
class Machine:
    """FP32 arithmetic: ``fused``: a product is added unrounded where a compiler may do so. ``flush``: what is
    smaller than 2^-126 is 0. ``fast``: division off by 2 ulp at the most, square root by 1. ``power``: how
    beta^t is computed."""

    fused: bool = False
    flush: bool = False
    fast: bool = False
    power: Literal["rounded", "squared", "host"] = "rounded"
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(11))

    def add(self, a: Number, b: Number) -> Floats:
        return self._out(self._in(a) + self._in(b))

    def mul(self, a: Number, b: Number) -> Floats:
        return self._out(self._in(a) * self._in(b))

    def div(self, a: Number, b: Number) -> Floats:
        return self._out(self._near(self._in(a) / self._in(b), 2))

    def sqrt(self, a: Number) -> Floats:
        return self._out(self._near(np.sqrt(self._in(a)), 1))

    def muladd(self, a: Number, b: Number, c: Number) -> Floats:
        """a * b + c, rounded once where products are fused."""
        if not self.fused:
            return self.add(self.mul(a, b), c)
        return self.fma(a, b, c)

    def fma(self, a: Number, b: Number, c: Number) -> Floats:
        """a * b + c, rounded once."""
        product = self._in(a).astype(np.float64) * self._in(b)  # exact
        other = np.broadcast_to(self._in(c).astype(np.float64), np.shape(product))
        total = product + other
        back = total - product
        lost = (product - (total - back)) + (other - back)
        return self._out(_odd(total, lost).astype(np.float32))

    def correction(self, beta: float, step: int) -> np.float32:
        """1 - beta^t in FP32."""
        base = F(beta)
        if self.power == "host":
            return F(1.0 - float(base) ** step)
        power = F(float(base) ** step)
        if self.power == "squared":
            power = _squared(base, step)
        if self.fast:
            power = F(np.clip(self._near(np.array([power]), 4)[0], 0, 1))
        return F(F(1) - power)

    def _in(self, values: Number) -> Floats:
        held = np.asarray(values, np.float32)
        return np.where(np.abs(held) < F(2.0**-126), np.copysign(F(0), held), held) if self.flush else held

    def _out(self, values: Floats) -> Floats:
        return self._in(values)

    def _near(self, values: Floats, ulps: int) -> Floats:
        """Off by up to so many units in the last place, where that is told to happen."""
        if not self.fast:
            return values
        bits = np.asarray(values, np.float32).view(np.int32)
        steps = self.random.integers(-ulps, ulps, bits.shape, np.int32, endpoint=True)
        sound = (np.abs(values) > F(1e-37)) & (np.abs(values) < F(1e37))
        return np.where(sound, (bits + steps).view(np.float32), values)


def _odd(total: NDArray[np.float64], lost: NDArray[np.float64]) -> NDArray[np.float64]:
    """A sum rounded to odd, so that rounding it again to FP32 is right."""
    bits = total.view(np.int64)
    exact = (lost == 0) | ~np.isfinite(total) | (bits & 1 == 1)
    away = np.sign(lost) == np.sign(total)
    return np.where(exact, total, (bits + np.where(away, 1, -1)).view(np.float64))


def _squared(base: np.float32, step: int) -> np.float32:
    """A power by squaring, every product rounded."""
    power, factor = F(1), base
    with np.errstate(under="ignore"):
        while step:
            if step & 1:
                power = F(power * factor)
            factor = F(factor * factor)
            step >>= 1
    return power


Order = Callable[[Machine, Hyper, Floats, Floats, Floats], Floats]


def _corrections(hyper: Hyper) -> tuple[float, float]:
    if not hyper.bias_correction:
        return 1.0, 1.0
    return 1.0 - hyper.beta1**hyper.step, 1.0 - hyper.beta2**hyper.step


def _single_corrections(machine: Machine, hyper: Hyper) -> tuple[np.float32, np.float32]:
    if not hyper.bias_correction:
        return F(1), F(1)
    return machine.correction(hyper.beta1, hyper.step), machine.correction(hyper.beta2, hyper.step)


def torch_cpu(machine: Machine, hyper: Hyper, p: Floats, m: Floats, v: Floats) -> Floats:
    """torch single tensor, foreach and fused on a CPU: p + (-step_size * m) / denom."""
    first, second = _corrections(hyper)
    decayed = machine.mul(p, F(1 - hyper.lr * hyper.weight_decay)) if hyper.weight_decay else p
    denom = machine.add(machine.div(machine.sqrt(v), F(second**0.5)), F(hyper.eps))
    return machine.add(decayed, machine.div(machine.mul(F(-(hyper.lr / first)), m), denom))


def torch_cuda(machine: Machine, hyper: Hyper, p: Floats, m: Floats, v: Floats) -> Floats:
    """torch on a GPU: fma(-step_size, m / denom, p); a division by a number is a product with its inverse."""
    first, second = _corrections(hyper)
    decayed = machine.mul(p, F(1 - hyper.lr * hyper.weight_decay)) if hyper.weight_decay else p
    root = machine.mul(machine.sqrt(v), machine.div(F(1), F(second**0.5)))
    denom = machine.add(root, F(hyper.eps))
    return machine.fma(F(-(hyper.lr / first)), machine.div(m, denom), decayed)


def torch_tail(machine: Machine, hyper: Hyper, p: Floats, m: Floats, v: Floats) -> Floats:
    """The scalar tail of torch's first fused CPU kernel: FP32 moments, the rest in double."""
    first, second = _corrections(hyper)
    decayed = (p * (1 - hyper.lr * hyper.weight_decay)).astype(np.float32) if hyper.weight_decay else p
    denom = (np.sqrt(v).astype(np.float64) / second**0.5 + hyper.eps).astype(np.float32)
    moved = decayed.astype(np.float64) - hyper.lr / first * m.astype(np.float64) / denom
    return machine._out(moved.astype(np.float32))


def torch_fused_double(machine: Machine, hyper: Hyper, p: Floats, m: Floats, v: Floats) -> Floats:
    """torch's fused kernel for GPUs before it took FP32 hyper-parameters."""
    first, second = _corrections(hyper)
    wide = p.astype(np.float64)
    decayed = machine._out((wide - hyper.lr * hyper.weight_decay * wide).astype(np.float32))
    root = machine.div(machine.sqrt(v), F(np.sqrt(F(second))))
    denom = (root.astype(np.float64) + hyper.eps).astype(np.float32)
    return machine.add(decayed, -machine.div(machine.mul(F(hyper.lr / first), m), denom))


def torch_fused_single(machine: Machine, hyper: Hyper, p: Floats, m: Floats, v: Floats) -> Floats:
    """torch's fused kernel for GPUs: everything in FP32, bias corrections too."""
    first, second = _single_corrections(machine, hyper)
    decay = machine.mul(F(hyper.lr), F(hyper.weight_decay))
    decayed = machine.muladd(-decay, p, p) if hyper.weight_decay else p
    denom = machine.add(machine.div(machine.sqrt(v), machine.sqrt(second)), F(hyper.eps))
    moved = machine.div(machine.mul(machine.div(F(hyper.lr), first), m), denom)
    return machine.add(decayed, -moved)


def _tensor_decay(machine: Machine, hyper: Hyper, p: Floats) -> Floats:
    """Decay by a factor computed from a tensor lr, or from a double one."""
    factor = machine.add(F(1), -machine.mul(F(hyper.lr), F(hyper.weight_decay)))
    return machine.mul(p, factor) if hyper.weight_decay else p


def capturable(machine: Machine, hyper: Hyper, p: Floats, m: Floats, v: Floats) -> Floats:
    """torch capturable, one tensor at a time: the denominator is divided by -step_size."""
    first, second = _single_corrections(machine, hyper)
    negative = -machine.div(F(hyper.lr), first)
    root = machine.div(machine.sqrt(v), machine.mul(machine.sqrt(second), negative))
    denom = machine.add(root, machine.div(F(hyper.eps), negative))
    return machine.add(_tensor_decay(machine, hyper, p), machine.div(m, denom))


def capturable_foreach(machine: Machine, hyper: Hyper, p: Floats, m: Floats, v: Floats) -> Floats:
    """torch capturable foreach: the step size is a reciprocal."""
    first, second = _single_corrections(machine, hyper)
    negative = machine.div(F(1), machine.div(-first, F(hyper.lr)))
    denom = machine.add(machine.div(machine.sqrt(v), machine.sqrt(second)), F(hyper.eps))
    return machine.add(_tensor_decay(machine, hyper, p), machine.div(m, machine.div(denom, negative)))


def apex(machine: Machine, hyper: Hyper, p: Floats, m: Floats, v: Floats) -> Floats:
    """Apex and Transformer Engine: p - lr * (mhat / (sqrt(vhat) + eps) + weight_decay * p)."""
    first, second = _single_corrections(machine, hyper)
    denom = machine.add(machine.sqrt(machine.div(v, second)), F(hyper.eps))
    update = machine.div(machine.div(m, first), denom)
    update = machine.muladd(F(hyper.weight_decay), p, update)
    return machine.muladd(F(-hyper.lr), update, p)


DOUBLE_ORDERS: tuple[Order, ...] = (torch_cpu, torch_cuda, torch_tail, torch_fused_double)
SINGLE_ORDERS: tuple[Order, ...] = (torch_fused_single, capturable, capturable_foreach, apex)


class ApexOrderAdamW(torch.optim.Optimizer):
    """AdamW as Apex computes it, with torch on any device: FP32 bias corrections from FP32 betas.

    The step counter is in the parameter group, as there; ``adam_w_mode`` 0 is L2.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        adam_w_mode: bool = True,
        bias_correction: bool = True,
    ) -> None:
        kept = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**kept, "bias_correction": bias_correction})
        self.adam_w_mode = 1 if adam_w_mode else 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step; a parameter without gradient stays."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            for p in group["params"]:
                if p.grad is not None:
                    self._move(group, p, p.grad)
        return loss

    def _move(self, group: dict[str, Any], p: torch.Tensor, grad: torch.Tensor) -> None:
        state = self.state[p]
        if not state:
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        m, v = state["exp_avg"], state["exp_avg_sq"]
        beta1, beta2 = (float(F(beta)) for beta in group["betas"])
        lr, decay = float(F(group["lr"])), float(F(group["weight_decay"]))
        if not self.adam_w_mode:
            grad = grad + decay * p
        m.mul_(beta1).add_((1 - beta1) * grad)
        v.mul_(beta2).add_((1 - beta2) * grad * grad)
        first = second = 1.0
        if group["bias_correction"]:
            first, second = (float(F(1 - beta ** group["step"])) for beta in (beta1, beta2))
        update = (m / first) / ((v / second).sqrt() + float(F(group["eps"])))
        if self.adam_w_mode:
            update = update + decay * p
        p.sub_(lr * update)
