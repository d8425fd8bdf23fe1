"""Whether the tensors that a reader writes into are memory of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from deltastore.errors import InputError
from deltastore.layout.device import shadow_of
from deltastore.layout.live import LiveWeights
from deltastore.layout.live_shard import LiveShard
from deltastore.layout.memory import memory_of, same_memory
from deltastore.reader.tied import Place

__all__ = ["check_apart", "tied_groups"]

_MAX_WORK = 1_000_000

Bits = np.ndarray[Any, Any]


def check_apart(weights: LiveWeights | LiveShard) -> None:
    """Refuse read-only tensors, and two that share memory unless they are the same memory.

    Parameters of a layout may not be the same memory either: it says itself which ones are tied. Raises
    ``InputError("wrong_memory")`` naming the tensor.
    """
    if isinstance(weights, LiveShard):
        _refuse_shared(weights.named, "parameters", tied=False)
        return
    named = [
        (name, shadow_of(view))
        for number, array in enumerate(weights.table.arrays)
        for name, view in zip(array.names, weights.views(number), strict=True)
    ]
    for name, view in named:
        if not view.flags.writeable:
            raise InputError(
                "wrong_memory", f"tensor {name!r} is read-only: give one that can change", where=name
            )
    _refuse_shared(named, "tensors", tied=True)


def tied_groups(weights: LiveWeights | LiveShard) -> list[list[Place]]:
    """The places of tensors that are one memory, in groups of two or more."""
    if isinstance(weights, LiveShard):
        return weights.tied
    groups: dict[object, list[Place]] = {}
    for array in range(len(weights.table.arrays)):
        for member, view in enumerate(weights.views(array)):
            if 0 not in view.shape:
                groups.setdefault(memory_of(view), []).append((array, member))
    return [group for group in groups.values() if len(group) > 1]


def _refuse_shared(named: list[tuple[str, Bits]], what: str, *, tied: bool) -> None:
    spans = sorted(
        ((*np.lib.array_utils.byte_bounds(view), name, view) for name, view in named if view.size),
        key=lambda span: span[:2],
    )
    reaching: list[tuple[int, int, str, Bits]] = []
    for span in spans:
        low, _, name, view = span
        reaching = [other for other in reaching if other[1] > low]
        for _, _, other_name, other in reaching:
            if not (tied and same_memory(view, other)) and _share(view, other):
                raise InputError(
                    "wrong_memory",
                    f"{what} {other_name!r} and {name!r} share part of their memory: give separate ones",
                    where=name,
                )
        reaching.append(span)


def _share(first: Bits, second: Bits) -> bool:
    """Whether two views share an element; a case too hard to decide counts as sharing."""
    try:
        return bool(np.shares_memory(first, second, max_work=_MAX_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True
