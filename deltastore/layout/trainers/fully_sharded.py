"""What one rank of torch's FSDP2 (``fully_shard``) holds of another layout's parameters."""

from __future__ import annotations

import operator
from dataclasses import replace

from deltastore.errors import InputError
from deltastore.layout.checking import check_layout
from deltastore.layout.integers import check_integer
from deltastore.layout.parts import intersection
from deltastore.layout.pieces import Axes, Hole, Layout, Param
from deltastore.layout.sharded import shard_of

__all__ = ["fully_sharded"]


def fully_sharded(layout: Layout, *, ranks: int, rank: int, replica: int = 0, axis: int = 0) -> Layout:
    """The local shards of rank ``rank`` of ``ranks``: every parameter of ``layout`` cut along ``axis``.

    A shard has ``ceil(length / ranks)`` elements of the axis, so that the last ones may be shorter, or empty.
    ``replica``: number of the copy under hybrid sharding; a piece publishes where both this and its own are
    0, and they are added, so that other copies may have one number. Parameters have the local tensors' shapes
    here; a writer that is given torch's DTensors takes ``layout`` itself, and asks them for their shards.
    Raises ``InputError``: ``bad_argument``; ``bad_layout`` for a parameter that is seen in another shape or
    has no such axis, and for a layout that is not sound.
    """
    check_layout(layout)
    check_integer("ranks", ranks, least=1)
    check_integer("rank", rank, below=ranks)
    check_integer("replica", replica)
    check_integer("axis", axis)
    name = f"{layout.name}, shard {rank} of {ranks}"
    boxes = {param.name: _shard(param, ranks, rank, axis) for param in layout.params}
    params = tuple(replace(param, shape=boxes[param.name][1]) for param in layout.params)
    pieces = [piece.clipped(*boxes[piece.param]) for piece in layout.pieces]
    holes = [_left(hole, *boxes[hole.param]) for hole in layout.holes]
    return replace(
        layout,
        name=name,
        params=params,
        pieces=tuple(
            replace(piece, replica=piece.replica + replica) for piece in pieces if piece is not None
        ),
        holes=tuple(hole for hole in holes if hole is not None),
    )


def _shard(param: Param, ranks: int, rank: int, axis: int) -> tuple[Axes, Axes]:
    if param.view is not None or axis >= len(param.shape):
        seen = f"it is seen as {list(param.form)}; draw it in its own shape"
        short = f"its shape {list(param.shape)} has no axis {axis}; give another axis"
        problem = short if param.view is None else seen
        raise InputError("bad_layout", f"parameter {param.name!r} cannot be cut: {problem}", where=param.name)
    first, length = shard_of(param.shape[axis], rank, ranks)
    start, size = [0] * len(param.shape), list(param.shape)
    start[axis], size[axis] = first, length
    return tuple(start), tuple(size)


def _left(hole: Hole, start: Axes, size: Axes) -> Hole | None:
    shared = intersection(hole.at, hole.size, start, size)
    return None if shared is None else Hole(hole.param, tuple(map(operator.sub, shared[0], start)), shared[1])
