"""Counting what a version is made of: elements by layer, steps by size, bytes by what they are for."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deltastore.entropy import PIECE_ELEMENTS, count_bits, position_bits_of
from deltastore.format.anatomy import dissect
from deltastore.format.patch import Encoding
from deltastore.format.table import Array
from deltastore.history.layers import ArrayLayers
from deltastore.kernels.reference.ordered import ordered, signed_step
from deltastore.kernels.rows import ROW

__all__ = ["ABSOLUTE", "BYTE_PARTS", "RAW", "STEP_CLASSES", "ArrayTally", "StepCounts"]

Bits = np.ndarray[Any, Any]

STEP_CLASSES: Final = ("-1", "+1", "2..7", "8..127", "128..")
"""Steps in ordered-integer space by their size; all but the first two of either sign."""

BYTE_PARTS: Final = ("index", "run headers", "low bits", "high bits", "residues", "raw", "manifest")
"""What bytes of a version are for. ``index`` has the headers of packs; ``run headers`` the run counts."""

ABSOLUTE: Final = "absolute"
"""A run whose residues are whole values: how far its elements moved, only the base tells."""

RAW: Final = "raw"

_NEAR: Final = 127
"""Steps up to here have a counter each, those beyond are few."""

_PART_OF: Final = {
    "run count": "run headers",
    "run header": "run headers",
    "low": "low bits",
    "high": "high bits",
    "residues": "residues",
    "raw": "raw",
}


class ArrayTally:
    """One array at one version. Memory: 4 bytes a tensor or 2**20 elements, 2 KiB, and the large steps."""

    def __init__(self, array: Array, layers: ArrayLayers) -> None:
        self.array = array
        self.layers = layers
        self.patches = 0
        self.written: Counter[str] = Counter()
        """Elements that patches write, by the width of their run, or ``absolute`` or ``raw``."""
        self.nbytes: Counter[str] = Counter()
        self.by_layer = np.zeros(len(layers.elements), np.int64)
        self._pieces = np.zeros((array.count, -(-array.elements_per_member // PIECE_ELEMENTS)), np.uint32)
        self.steps = StepCounts()

    @property
    def changed(self) -> int:
        """Elements that were counted by ``count``."""
        return int(self.by_layer.sum())

    def patch(self, row: Any, data: Bits) -> None:
        """Count the bytes of a patch, which decodes, and the elements that it writes."""
        self.patches += 1
        self.nbytes["index"] += ROW.itemsize
        element = self.array.element
        elements = self.array.grid.box(int(row["chunk"])).elements
        found = dissect(data, int(row["encoding"]), elements, element.bits)
        for part in found.parts:
            self.nbytes[_PART_OF[part.name]] += part.end - part.start
        for run in found.runs:
            self.written[ABSOLUTE if run.width == element.bits else str(run.width)] += run.count
        if int(row["encoding"]) == Encoding.RAW:
            self.written[RAW] += elements

    def changed_from(self, chunk: int, positions: Bits, old: Bits, new: Bits) -> None:
        """Count those of some elements of a chunk whose bits are others now, and how far they moved."""
        differing = old != new
        positions, old, new = positions[differing], old[differing], new[differing]
        self.count(chunk, positions)
        floating = self.array.element.floating
        self.steps.add(signed_step(ordered(old, floating=floating), ordered(new, floating=floating)))

    def count(self, chunk: int, positions: Bits) -> None:
        """Count elements of a chunk by the layer and the tensor that they are of."""
        members, flat = self.array.grid.locate(self.array.grid.box(chunk), positions)
        layers = np.bincount(self.layers.of_member[members], minlength=len(self.by_layer))
        self.by_layer += layers
        np.add.at(self._pieces, (members, flat // PIECE_ELEMENTS), 1)

    def position_bits(self) -> float:
        """The entropy of the positions of what was counted, in pieces of 2**20 elements of a tensor."""
        return position_bits_of(self._piece_elements, self._pieces)

    @property
    def _piece_elements(self) -> NDArray[np.int64]:
        count, whole = self._pieces.shape[1], self.array.elements_per_member
        starts = np.arange(count, dtype=np.int64) * PIECE_ELEMENTS
        return np.minimum(whole - starts, PIECE_ELEMENTS)


class StepCounts:
    """How often each step in ordered-integer space was taken. Memory: 2 KiB, and the large steps."""

    def __init__(self) -> None:
        self._near = np.zeros(2 * _NEAR + 1, np.int64)
        self._far: Counter[int] = Counter()

    def add(self, steps: Bits) -> None:
        """Count steps: signed integers (k,), none of them 0."""
        near = (steps >= -_NEAR) & (steps <= _NEAR)
        self._near += np.bincount(steps[near].astype(np.int64) + _NEAR, minlength=2 * _NEAR + 1)
        values, counts = np.unique(steps[~near], return_counts=True)
        self._far.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def include(self, other: StepCounts) -> None:
        """Count what another has counted."""
        self._near += other._near
        self._far.update(other._far)

    def bits(self) -> float:
        """The entropy of all steps."""
        return count_bits([*self._near[self._near > 0].tolist(), *self._far.values()])

    def by_class(self) -> dict[str, int]:
        """The steps by ``STEP_CLASSES``."""
        found = dict.fromkeys(STEP_CLASSES, 0)
        near = {at - _NEAR: count for at, count in enumerate(self._near.tolist()) if count}
        for step, count in (*near.items(), *self._far.items()):
            found[_class_of(step)] += count
        return found


def _class_of(step: int) -> str:
    if abs(step) == 1:
        return STEP_CLASSES[step > 0]
    return STEP_CLASSES[2] if abs(step) <= 7 else STEP_CLASSES[3] if abs(step) <= _NEAR else STEP_CLASSES[4]
