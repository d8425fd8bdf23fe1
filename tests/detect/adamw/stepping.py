"""Parameters, gradients and steps for tests of what is known of an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deltastore.detect.adamw.attachment import Attachment, Held
from deltastore.detect.adamw.bound import rule_of
from deltastore.kernels.reference.inversion import bf16_bits, invert_elements

__all__ = ["Told", "attach", "bits", "explains", "give_gradients", "parameters", "step"]


class Told(torch.optim.Optimizer):
    """Steps as it is told. Its counters stand at 1, and its moments are 0."""

    def __init__(self, params: Iterable[Any], act: Callable[[Told], None], **settings: Any) -> None:
        kept = {"lr": 1e-3, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.0, **settings}
        super().__init__(params, kept)
        self.act = act
        for group in self.param_groups:
            for param in group["params"]:
                names = ("exp_avg", "exp_avg_sq")
                self.state[param] = {name: torch.zeros_like(param) for name in names} | {"step": 1}

    def step(self, closure: Any = None) -> Any:
        self.act(self)

    def count(self, by: float = 1) -> None:
        """Move every counter."""
        for state in self.state.values():
            state["step"] += by


def parameters(*shapes: tuple[int, ...], seed: int = 3) -> list[Any]:
    random = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(shape, generator=random) * 0.02) for shape in shapes]


def give_gradients(params: Iterable[Any], seed: int = 5) -> None:
    random = torch.Generator().manual_seed(seed)
    for param in params:
        param.grad = torch.randn(param.shape, generator=random, dtype=torch.float32).to(param.dtype)


def attach(optimizer: Any, tensors: Mapping[str, Any] | Iterable[Any]) -> Attachment:
    """What is followed of an optimizer whose callers do nothing."""
    if not isinstance(tensors, Mapping):
        tensors = {f"w{number}": tensor for number, tensor in enumerate(tensors)}
    held = [
        Held(name, view.detach() if isinstance(view, torch.Tensor) else view)
        for name, view in tensors.items()
    ]
    return Attachment(optimizer, held, before=lambda _: None, after=lambda _: None)


def step(attachment: Attachment, params: Iterable[Any], seed: int = 5) -> None:
    """Forget the step before, and take one with fresh gradients."""
    attachment.forget()
    give_gradients(params, seed)
    attachment.optimizer.step()


def bits(view: Any) -> NDArray[np.uint16]:
    """What is published of a tensor."""
    return bf16_bits(view.detach().cpu().numpy())


def explains(attachment: Attachment, number: int, before: NDArray[np.uint16]) -> bool:
    """Whether the last step as it was captured leads back to the bits ``before``, or leaves them possible."""
    taken = attachment.taken(number)
    if taken.hyper is None or taken.reason or not taken.moved:
        return False
    mean, square = (np.ascontiguousarray(moment.numpy()) for moment in attachment.moments(number))
    master = np.ascontiguousarray(attachment.held[number].view.numpy())
    _, old, low, high, uncertain = invert_elements(master, mean, square, rule_of(taken.hyper))
    between = (_values(low) <= _values(before)) & (_values(before) <= _values(high))
    found = (old == before) | (uncertain & between)
    return bool(found.all() and uncertain.sum() <= 1 + 0.1 * uncertain.size)


def _values(of: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (of.astype(np.uint32) << np.uint32(16)).view(np.float32)
