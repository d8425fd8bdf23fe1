"""Elements by the name that people give them: ``model.embed_tokens.weight[17,3]``."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from deltastore.errors import InputError
from deltastore.format.table import Array, TensorTable

__all__ = ["ElementName", "ElementPlace", "index_text", "indexes_at"]

_NAMED: Final = re.compile(r"(?P<tensor>.*?)(?:\[(?P<index>[^\[\]]*)\])?", re.DOTALL)
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_NEAR_NAMES: Final = 3


@dataclass(frozen=True, slots=True)
class ElementPlace:
    """An element of a table: array, member, index along each axis; its chunk, and its position there."""

    array: int
    member: int
    index: tuple[int, ...]
    chunk: int
    position: int


@dataclass(frozen=True, slots=True)
class ElementName:
    """A tensor and an index: a number for each axis, or one alone, the row-major place among all elements.

    Numbers below 0 count from the end. No number is the element of a tensor without axes.
    """

    tensor: str
    index: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> ElementName:
        """``TENSOR[3,17]``, ``TENSOR[1234]``, ``TENSOR[]`` or ``TENSOR``; ``InputError("bad_argument")``."""
        found = _NAMED.fullmatch(text)
        parts = [part.strip() for part in ((found and found["index"]) or "").split(",")]
        if found is None or (parts != [""] and not all(map(_NUMBER.fullmatch, parts))):
            raise InputError(
                "bad_argument", f"{text!r:.200} is no element: write TENSOR[3,17] or TENSOR[1234]"
            )
        return cls(found["tensor"], () if parts == [""] else tuple(map(int, parts)))

    def of(self, table: TensorTable) -> ElementPlace:
        """Where it is. Raises ``InputError``: ``unknown_tensor``, with near names, or ``bad_argument``."""
        if self.tensor not in table.places:
            raise _unknown(self.tensor, table)
        number, member = table.places[self.tensor]
        array = table.arrays[number]
        index = self._within(array)
        grid = array.grid
        chunk = 0
        for at, step, count in zip((member, *index), grid.chunk, grid.counts, strict=True):
            chunk = chunk * count + at // step
        position = 0
        box = grid.box(chunk)
        for at, start, size in zip((member, *index), box.start, box.size, strict=True):
            position = position * size + at - start
        return ElementPlace(number, member, index, chunk, position)

    def _within(self, array: Array) -> tuple[int, ...]:
        shape, index = array.shape, self.index
        if len(index) == 1 and len(shape) != 1:
            flat = self._checked(index[0], array.elements_per_member, f"{array.elements_per_member} elements")
            return tuple(int(at) for at in np.unravel_index(flat, shape)) if shape else ()
        if len(index) != len(shape):
            message = (
                f"{self.tensor} has shape {list(shape)}: give {len(shape)} numbers, "
                "or one for the place among all its elements"
            )
            raise InputError("bad_argument", message, where=self.tensor)
        return tuple(
            self._checked(at, extent, f"shape {list(shape)}") for at, extent in zip(index, shape, strict=True)
        )

    def _checked(self, at: int, extent: int, what: str) -> int:
        if not -extent <= at < extent:
            message = f"index {at} is out of range: {self.tensor} has {what}"
            raise InputError("bad_argument", message, where=self.tensor)
        return at % extent


def indexes_at(array: Array, flat: int) -> tuple[int, ...]:
    """The index along each axis of the row-major place ``flat`` of a tensor."""
    index = []
    for extent in reversed(array.shape):
        flat, here = divmod(flat, extent)
        index.append(here)
    return tuple(reversed(index))


def index_text(index: tuple[int, ...]) -> str:
    """``[3,17]``."""
    return f"[{','.join(map(str, index))}]"


def _unknown(tensor: str, table: TensorTable) -> InputError:
    near = difflib.get_close_matches(tensor, table.places, n=_NEAR_NAMES, cutoff=0.5)
    hint = f"; near it: {', '.join(near)}" if near else ""
    message = f"the stream has no tensor {tensor!r:.200}{hint}"
    return InputError("unknown_tensor", message, where=tensor)
