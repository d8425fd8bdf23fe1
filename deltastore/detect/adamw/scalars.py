"""Numbers as they are now, some of them in tensors: copied at once, read later, all of a device together."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from deltastore.detect.adamw.memory import local_of
from deltastore.layout.memory import is_torch

__all__ = ["Scalars"]


class Scalars:
    """Copies of ``given``: numbers, arrays or tensors of one element, or None for what there is not.

    The copies of tensors stay on their devices until ``values`` is read for the first time, with one transfer
    from each: an optimizer step need not wait for them.
    """

    def __init__(self, given: Sequence[object]) -> None:
        self._plain: list[float | None] = []
        waiting: dict[Any, dict[Any, list[tuple[int, Any]]]] = {}
        for index, value in enumerate(given):
            tensor: Any = local_of(value) if is_torch(value) else None
            if tensor is None or tensor.numel() != 1:
                self._plain.append(_number(value))
                continue
            self._plain.append(None)
            kinds = waiting.setdefault(tensor.device, {})
            kinds.setdefault(tensor.dtype, []).append((index, tensor.detach().reshape(())))
        self._copies = [_copied(kinds) for kinds in waiting.values()]

    @cached_property
    def values(self) -> tuple[float | None, ...]:
        """A number each: NaN for what is none, None for what there was not."""
        values = list(self._plain)
        for indices, copy in self._copies:
            for index, value in zip(indices, copy.tolist(), strict=True):
                values[index] = value
        return tuple(values)


def _copied(kinds: dict[Any, list[tuple[int, Any]]]) -> tuple[list[int], Any]:
    """Scalars of one device, by element type, as one tensor of doubles; and whose they are."""
    torch = sys.modules["torch"]
    indices = [index for entries in kinds.values() for index, _ in entries]
    stacks = [torch.stack([tensor for _, tensor in entries]).double() for entries in kinds.values()]
    return indices, torch.cat(stacks)


def _number(value: Any) -> float | None:
    if value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return math.nan
