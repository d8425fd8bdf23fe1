"""From parameters of many processes back to tensors, by the formula of a piece and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from deltastore.format.table import TensorSpec
from deltastore.layout.pieces import Layout, Piece

Ids = np.ndarray[Any, np.dtype[np.int64]]


def unique_ids(tensors: Iterable[TensorSpec]) -> dict[str, Ids]:
    """Tensors in which every element of all of them has its own number, from 1 on."""
    made: dict[str, Ids] = {}
    first = 1
    for tensor in tensors:
        count = int(np.prod(tensor.shape, dtype=np.int64))
        made[tensor.name] = np.arange(first, first + count, dtype=np.int64).reshape(tensor.shape)
        first += count
    return made


def held(layout: Layout, tensors: Mapping[str, Ids]) -> dict[str, Ids]:
    """The parameters of one process that holds ``tensors``; 0 in holes."""
    params = {param.name: np.zeros(param.shape, np.int64) for param in layout.params}
    for piece in layout.pieces:
        memory_of(layout, piece, params[piece.param])[...] = tensors[piece.tensor][box_of(piece)]
    return params


def reassemble(layouts: Sequence[Layout], params: Sequence[Mapping[str, Ids]]) -> dict[str, Ids]:
    """The tensors that processes with these layouts hold in ``params``.

    Every element must be met at least once, and all its copies must agree.
    """
    tensors = {tensor.name: np.zeros(tensor.shape, np.int64) for tensor in layouts[0].tensors}
    met = {tensor.name: np.zeros(tensor.shape, np.bool_) for tensor in layouts[0].tensors}
    for layout, memory in zip(layouts, params, strict=True):
        for piece in layout.pieces:
            box = box_of(piece)
            mine = memory_of(layout, piece, memory[piece.param])
            before, seen = tensors[piece.tensor][box], met[piece.tensor][box]
            assert np.array_equal(before[seen], mine[seen]), f"{layout.name}: another copy of {piece}"
            tensors[piece.tensor][box] = mine
            met[piece.tensor][box] = True
    missing = [name for name, seen in met.items() if not seen.all()]
    assert not missing, f"held by nobody: {missing[:3]}"
    return tensors


def box_of(piece: Piece) -> tuple[slice, ...]:
    """Where a piece is in its tensor."""
    return tuple(slice(low, low + length) for low, length in zip(piece.lo, piece.size, strict=True))


def memory_of(layout: Layout, piece: Piece, param: Ids) -> Ids:
    """The memory of a piece, in the order of its tensor: ``memory[base + sum of i_d * strides_d]``.

    NumPy takes a buffer that is contiguous only, and nothing beyond its ends.
    """
    form = layout.forms[piece.param].form
    strides = tuple(step * param.itemsize for step in piece.strides(form))
    return np.ndarray(piece.size, param.dtype, param, piece.base(form) * param.itemsize, strides)
