"""Where tensors stand in a model: their layer, the first index of their pattern, and their projection."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.format.names import PLACE
from deltastore.format.table import Array

__all__ = ["ArrayLayers", "projection"]


class ArrayLayers:
    """The layers of one array: its members by the first index of their names.

    ``numbers`` (L,) are the indexes that occur, ascending; empty for a pattern without index, whose tensors
    are of no layer.
    """

    def __init__(self, array: Array) -> None:
        self._array = array

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """The layers that occur."""
        return np.unique(self._first)

    @cached_property
    def of_member(self) -> NDArray[np.int64]:
        """For each member the place of its layer in ``numbers``; of arrays without layers, 0."""
        if not len(self._first):
            return np.zeros(self._array.count, np.int64)
        return np.searchsorted(self.numbers, self._first).astype(np.int64)

    @cached_property
    def elements(self) -> NDArray[np.int64]:
        """Elements of each layer; one number for an array without layers."""
        members = np.bincount(self.of_member, minlength=max(len(self.numbers), 1))
        whole: NDArray[np.int64] = members.astype(np.int64) * self._array.elements_per_member
        return whole

    @cached_property
    def _first(self) -> np.ndarray[Any, Any]:
        firsts = [index[0] for index in self._array.indexes() if index]
        return np.array(firsts, np.int64)


def projection(pattern: str) -> str:
    """What a pattern says of its tensors beside their layer: ``mlp.experts.*.up_proj`` of
    ``model.layers.*.mlp.experts.*.up_proj.weight``.
    """
    _, layered, rest = f".{pattern}".partition(f".{PLACE}.")
    name = rest if layered else pattern
    return name.removesuffix(".weight") or name
