"""What a layout says about memory, in plain NumPy: no code of deltastore that moves elements is used."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from deltastore.layout.pieces import Layout

__all__ = ["laid_out"]


def laid_out(layout: Layout, name: str, tensors: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    """A parameter filled with ``tensors``; NaN where no tensor feeds it."""
    param = layout.forms[name]
    memory = np.full(param.form, np.nan, np.float32)
    for piece in layout.of_param[name]:
        box = tensors[piece.tensor][_slices(piece.lo, piece.size)]
        thin = tuple(axis for axis in range(len(param.form)) if axis not in piece.axes)
        memory[_slices(piece.at, piece.extent)] = np.expand_dims(box.transpose(np.argsort(piece.axes)), thin)
    return memory.reshape(param.shape)


def _slices(start: tuple[int, ...], size: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(first, first + count) for first, count in zip(start, size, strict=True))
