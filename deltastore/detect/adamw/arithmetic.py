"""What arithmetic a group of an optimizer has, and why it is not AdamW's where it is not.

Two families are known: ``torch.optim.Adam`` and ``AdamW``, which correct the bias in double precision unless
they are capturable; and everything else with Adam's hyper-parameters (Apex, Transformer Engine, DeepSpeed),
which does so in FP32. A class that only looks like AdamW costs bytes, not truth: the certificate proves every
block.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from deltastore.layout.memory import is_torch

__all__ = ["Arithmetic", "Group", "arithmetic_of", "kind_of", "square_of", "why_not_adamw"]

Group = Mapping[str, Any]

_OTHERS: Final = frozenset(
    {
        *(
            "adabelief",
            "adabound",
            "adadelta",
            "adafactor",
            "adagrad",
            "adai",
            "adalite",
            "adamax",
            "adammini",
        ),
        *(
            "adamp",
            "adan",
            "ademamix",
            "adopt",
            "apollo",
            "asgd",
            "came",
            "dadaptadam",
            "galore",
            "lamb",
            "lars",
        ),
        *(
            "lbfgs",
            "lion",
            "muon",
            "nadam",
            "novograd",
            "onebitadam",
            "onebitlamb",
            "prodigy",
            "radam",
            "ranger",
        ),
        *("rmsprop", "rprop", "sgd", "shampoo", "soap", "sophia", "sparseadam", "stableadamw", "zerooneadam"),
    }
)
"""Names of optimizers with other arithmetic, some of them with the same hyper-parameters and state."""

_PREFIXES: Final = ("distributed", "deepspeed", "paged", "torch", "cpu", "fused")
_PARTS: Final = {
    "8bit": "its moments are quantised",
    "4bit": "its moments are quantised",
    "fp8": "its moments are quantised",
    "optimizer1state": "its moments are not kept as exp_avg and exp_avg_sq",
    "optimizer2state": "its moments are not kept as exp_avg and exp_avg_sq",
    "schedulefree": "its weights are averages",
    "cautious": "its updates are masked",
    "muon": "its updates are of other arithmetic",
}


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How a group steps. ``decoupled``: weight decay shrinks the weight, and is not added to the gradient.

    ``single``: the bias is corrected in FP32.
    """

    decoupled: bool
    single: bool
    bias_correction: bool


def kind_of(optimizer: object) -> str:
    """The name of its class."""
    return type(optimizer).__name__


def why_not_adamw(optimizer: object, group: Group) -> str:
    """Why the group does not step as Adam or AdamW does; "" where it does."""
    if not _is_torch_adam(optimizer) and group.get("use_muon") is not False:
        if group.get("use_muon"):
            return "Muon does not step as AdamW does: its updates are of other arithmetic"
        for name in _names(optimizer):
            reason = _why_other(name)
            if reason:
                return f"{kind_of(optimizer)} does not step as AdamW does: {reason}"
    missing = [key for key in ("lr", "betas", "eps") if key not in group]
    if missing:
        return f"{kind_of(optimizer)} does not step as AdamW does: its groups have no {missing[0]}"
    betas = group["betas"]
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        return f"{kind_of(optimizer)} does not step as AdamW does: it has not two betas"
    return ""


def arithmetic_of(optimizer: object, group: Group) -> Arithmetic:
    """How a group for which ``why_not_adamw`` says nothing steps.

    ``maximize`` changes nothing: the mean has the sign.
    """
    known = _is_torch_adam(optimizer)
    in_tensors = any(is_torch(value) for value in (group["lr"], *group["betas"]))
    correction = group.get("bias_correction", group.get("correct_bias", True))
    special = bool(group.get("capturable") or group.get("differentiable")) or _is_fused_on_device(group)
    return Arithmetic(
        decoupled=_is_decoupled(optimizer, group),
        single=not known or in_tensors or special,
        bias_correction=known or bool(correction),
    )


def _is_fused_on_device(group: Group) -> bool:
    """Torch's fused kernel on a GPU corrects the bias in FP32; on a CPU it does so in double."""
    return bool(group.get("fused")) and any(
        getattr(param, "device", None) is not None and param.device.type != "cpu" for param in group["params"]
    )


def square_of(group: Group) -> str:
    """The state's name of the moment whose root an update is divided by."""
    return "max_exp_avg_sq" if group.get("amsgrad") else "exp_avg_sq"


def _is_decoupled(optimizer: object, group: Group) -> bool:
    mode = getattr(optimizer, "adam_w_mode", None)
    if mode is not None:
        return bool(mode)
    if "decoupled_weight_decay" in group:
        return bool(group["decoupled_weight_decay"])
    return any("adamw" in name for name in _names(optimizer))


def _is_torch_adam(optimizer: object) -> bool:
    """Whether it steps with torch's own code: a subclass with a step of its own does not."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    step = inspect.unwrap(getattr(type(optimizer), "step", _is_torch_adam))
    return any(
        isinstance(optimizer, kind) and step is inspect.unwrap(kind.step)
        for kind in (torch.optim.AdamW, torch.optim.Adam)
    )


def _names(optimizer: object) -> list[str]:
    return [kind.__name__.lower() for kind in type(optimizer).__mro__]


def _why_other(name: str) -> str:
    """What is known of a class of that name, or ""."""
    for part, reason in _PARTS.items():
        if part in name:
            return reason
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return "its updates are of other arithmetic" if name in _OTHERS else ""
