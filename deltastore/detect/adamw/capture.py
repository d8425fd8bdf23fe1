"""What an optimizer has at one moment: the hyper-parameters of its groups, and its step counters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from deltastore.detect.adamw.arithmetic import Arithmetic, arithmetic_of, why_not_adamw
from deltastore.detect.adamw.hyper import Hyper
from deltastore.detect.adamw.masters import state_of
from deltastore.detect.adamw.matching import parameters_of
from deltastore.detect.adamw.scalars import Scalars

__all__ = ["Capture", "Counted"]

_OF_GROUP: Final = 6


@dataclass(frozen=True, slots=True)
class Counted:
    """The step counter of a parameter. ``own``: whether it is its own, and not that of its group."""

    count: float
    own: bool


@dataclass(frozen=True, slots=True)
class _Row:
    """Where the numbers of a parameter are."""

    group: int
    own: int
    gradient: bool


class Capture:
    """Copies, made at once; numbers in the memory of a GPU are read when they are first asked for.

    Parameters are told apart by identity, and are kept alive.
    """

    def __init__(self, optimizer: Any) -> None:
        given: list[object] = []
        self._arithmetic: list[Arithmetic | None] = []
        for group in optimizer.param_groups:
            adamw = not why_not_adamw(optimizer, group)
            self._arithmetic.append(arithmetic_of(optimizer, group) if adamw else None)
            known = (group["lr"], *group["betas"], group["eps"]) if adamw else (None,) * 4
            given.extend((*known, group.get("weight_decay", 0.0), group.get("step")))
        self._rows: dict[int, _Row] = {}
        self._params = []
        for at, _, param in parameters_of(optimizer):
            counter = state_of(optimizer, param).get("step")
            self._rows[id(param)] = _Row(at, len(given), counter is None and _has_gradient(param))
            self._params.append(param)
            given.append(counter)
        self._scalars = Scalars(given)

    def knows(self, param: Any) -> bool:
        """Whether the parameter was in a group."""
        return id(param) in self._rows

    def has_gradient(self, param: Any) -> bool:
        """Whether it had one; asked only of a parameter without a counter of its own."""
        return self._rows[id(param)].gradient

    def counted(self, param: Any) -> Counted | None:
        """Its step counter; None where it had none yet."""
        row = self._rows[id(param)]
        values = self._scalars.values
        own = values[row.own]
        if own is not None:
            return Counted(own, True)
        shared = values[row.group * _OF_GROUP + 5]
        return None if shared is None else Counted(shared, False)

    def counts_as(self, other: Capture) -> bool:
        """Whether no counter differs between both."""
        return self._rows.keys() == other._rows.keys() and all(
            self.counted(param) == other.counted(param) for param in self._params
        )

    def hyper(self, param: Any, step: int) -> Hyper:
        """What moves the parameter in step ``step``, if its group is AdamW's."""
        row = self._rows[id(param)]
        first = row.group * _OF_GROUP
        lr, beta1, beta2, eps, decay = (
            math.nan if value is None else value for value in self._scalars.values[first : first + 5]
        )
        kind = self._arithmetic[row.group]
        if kind is None:
            raise LookupError(f"group {row.group} does not step as AdamW does")
        return Hyper(
            lr=lr,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            weight_decay=decay if kind.decoupled else 0.0,
            step=step,
            bias_correction=kind.bias_correction,
            single=kind.single,
        )


def _has_gradient(param: Any) -> bool:
    """Transformer Engine takes gradients of another element type from ``decoupled_grad``."""
    grad = param.grad if getattr(param, "is_leaf", False) else None
    return grad is not None or getattr(param, "decoupled_grad", None) is not None
