"""Torch's distributed tensors (FSDP2, tensor parallelism) as parts: what this process holds of each.

The arithmetic is that of torch placements: a shard is the n-th of ``ceil(size / count)``
elements, so the last ones may be short or empty. Nothing here imports torch.
"""

from __future__ import annotations

from typing import Any

from deltastore.errors import InputError
from deltastore.layout.parts import Part

__all__ = ["is_sharded", "part_of_sharded"]


def is_sharded(tensor: object) -> bool:
    """Whether it is a distributed tensor."""
    return hasattr(tensor, "to_local") and hasattr(tensor, "placements")


def part_of_sharded(name: str, tensor: Any) -> tuple[Part, ...]:
    """The part of a distributed tensor that is for this process to publish: one, or none.

    Of replicas, the first process on the mesh's axis publishes. Raises
    ``InputError("wrong_memory")`` for placements that are no box: partial sums, and strided shards, which
    tensor parallelism below FSDP makes.
    """
    mesh, shape = tensor.device_mesh, tuple(tensor.shape)
    place = mesh.get_coordinate()
    local = tensor.to_local()
    if place is None:
        return ()
    start, size = [0] * len(shape), list(shape)
    for axis, placement in enumerate(tensor.placements):
        kind = type(placement).__name__
        if kind == "Replicate":
            if place[axis]:
                return ()
        elif kind == "Shard":
            _cut(start, size, placement.dim % len(shape), place[axis], mesh.size(axis))
        else:
            raise InputError(
                "wrong_memory",
                f"tensor {name!r} is placed as {placement}, which is no box of it: give its parts yourself",
                where=name,
            )
    if tuple(local.shape) != tuple(size):
        raise InputError(
            "wrong_memory",
            f"tensor {name!r} holds {list(local.shape)} here where its placements give {size}: give its "
            "parts yourself",
            where=name,
        )
    return (Part(local, shape, tuple(start)),)


def _cut(start: list[int], size: list[int], axis: int, number: int, count: int) -> None:
    """Narrow one axis to shard ``number`` of ``count``."""
    each = -(-size[axis] // count)
    first = min(number * each, size[axis])
    start[axis] += first
    size[axis] = min(each, size[axis] - first)
