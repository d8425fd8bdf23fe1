"""What must be true of a parameter and its state before a step of it can be inverted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from deltastore.detect.adamw.arithmetic import Group, kind_of, square_of, why_not_adamw
from deltastore.detect.adamw.memory import element_of, is_plain, local_of

__all__ = ["state_of", "why_no_moments", "why_refused"]

_MASTERS: Final = ("master_param", "master_weight", "master")
"""Where an optimizer keeps master weights of its own, in the state of a parameter."""


def state_of(optimizer: Any, param: Any) -> Mapping[str, Any]:
    """The state of a parameter as it is now; empty where there is none. Makes no entry."""
    state = optimizer.state.get(param)
    return state if isinstance(state, Mapping) else {}


def why_refused(optimizer: Any, group: int, param: Any) -> str:
    """Why a step of the parameter cannot be inverted, as far as that is known now; "" where it can be."""
    settings = optimizer.param_groups[group]
    return (
        why_not_adamw(optimizer, settings)
        or _why_no_master(optimizer, param)
        or _why_planned(optimizer)
        or why_no_moments(optimizer, settings, param, missing=False)
    )


def _why_no_master(optimizer: Any, param: Any) -> str:
    element = element_of(param)
    if getattr(optimizer, "store_param_remainders", False):
        return "its master weights are split into BF16 weights and remainders"
    if any(name in state_of(optimizer, param) for name in _MASTERS):
        return f"its master weights are kept inside {kind_of(optimizer)}"
    if element.startswith("complex"):
        return "its parameters are complex"
    if element == "float32":
        return ""
    if getattr(optimizer, "master_weights", False):
        return f"its parameters are {element}; their master weights are kept inside {kind_of(optimizer)}"
    return f"its parameters are {element}: there are no FP32 master weights"


def _why_planned(optimizer: Any) -> str:
    """Moments that will not be FP32, as Transformer Engine is told beforehand."""
    planned = getattr(optimizer, "name_to_dtype_map", None)
    if isinstance(planned, Mapping):
        for name in ("exp_avg", "exp_avg_sq"):
            element = str(planned.get(name, "float32")).removeprefix("torch.")
            if element != "float32":
                return f"its moments are {element}, not FP32"
    return ""


def why_no_moments(optimizer: Any, settings: Group, param: Any, *, missing: bool = True) -> str:
    """Why the moments in the state cannot be used; "" where they can be.

    ``missing``: whether it says so of a state without moments, as every state is before the first step.
    """
    state = state_of(optimizer, param)
    if not state and not missing:
        return ""
    for name in ("exp_avg", square_of(settings)):
        moment = state.get(name)
        if moment is None:
            # A step may have been counted before the moments are made.
            return f"its state has no {name}" if missing or set(state) - {"step"} else ""
        local = local_of(moment)
        if not is_plain(local):
            return f"its moments are of type {type(local).__name__}, not plain tensors"
        if element_of(local) != "float32":
            return f"its moments are {element_of(local)}, not FP32"
    return ""
