"""Torch's distributed tensors (FSDP2, tensor parallelism) as parts: what this process holds of each.

The arithmetic is that of torch placements: a shard is the n-th of ``ceil(size / count)``
elements, so the last ones may be short or empty. Nothing here imports torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deltastore.errors import InputError
from deltastore.layout.parts import Part

__all__ = ["is_sharded", "part_of_sharded", "shard_of"]

Axes = tuple[int, ...]
Ranges = list[tuple[int, int]]
"""(first, length) of what is held along an axis, in the order in which it is held."""


def is_sharded(tensor: object) -> bool:
    """Whether it is a distributed tensor."""
    return hasattr(tensor, "to_local") and hasattr(tensor, "placements")


def shard_of(length: int, number: int, count: int) -> tuple[int, int]:
    """(first, length) of shard ``number`` of ``count``; the last ones may be short or empty."""
    each = -(-length // count)
    first = min(number * each, length)
    return first, min(each, length - first)


def part_of_sharded(name: str, tensor: Any) -> tuple[Part, ...]:
    """What of a distributed tensor is for this process to publish: its parts, none where that is another's.

    There are several only of strided shards, which tensor parallelism below FSDP makes. Of replicas, the
    first process on the mesh's axis publishes. Raises ``InputError("wrong_memory")`` for placements that are
    no boxes, such as partial sums, and for uneven shards of shards whose placements are not what was done.
    """
    mesh, shape = tensor.device_mesh, tuple(tensor.shape)
    place = mesh.get_coordinate()
    local = tensor.to_local()
    if place is None:
        return ()
    cuts: list[list[_Cut]] = [[] for _ in shape]
    for axis, placement in enumerate(tensor.placements):
        kind = type(placement).__name__
        if kind in ("Shard", "_StridedShard"):
            split = int(getattr(placement, "split_factor", 1))
            cuts[placement.dim % len(shape)].append(_Cut(place[axis], mesh.size(axis), split))
        elif kind != "Replicate":
            raise _refused(name, f"is placed as {placement}, which is no box of it")
        elif place[axis]:
            return ()
    held = [_held(name, length, each) for length, each in zip(shape, cuts, strict=True)]
    size = [sum(length for _, length in ranges) for ranges in held]
    if tuple(local.shape) != tuple(size):
        raise _refused(name, f"holds {list(local.shape)} here where its placements give {size}")
    return tuple(_boxes(local, shape, held))


@dataclass(frozen=True, slots=True)
class _Cut:
    """Shard ``number`` of ``count`` of each of ``split`` shards of what is there."""

    number: int
    count: int
    split: int

    def of(self, held: Ranges) -> Ranges:
        """What remains."""
        total = sum(length for _, length in held)
        ranges: Ranges = []
        for outer in range(self.split):
            first, length = shard_of(total, outer, self.split)
            inner, rest = shard_of(length, self.number, self.count)
            ranges += _within(held, first + inner, rest)
        return _joined(ranges)


def _held(name: str, length: int, cuts: Sequence[_Cut]) -> Ranges:
    """What is held along one axis.

    Tensor parallelism has cut first, then FSDP each shard: placements say so with strided shards, but not
    exactly where shards are uneven. What they say must then be what was done.
    """
    plain = [cut for cut in cuts if cut.split == 1]
    strided = [cut for cut in cuts if cut.split > 1]
    held = _after(length, cuts)
    if plain and strided and held != _after(length, [*plain, *(_Cut(c.number, c.count, 1) for c in strided)]):
        raise _refused(name, f"has strided shards of an axis of {length} that are uneven")
    return held


def _after(length: int, cuts: Sequence[_Cut]) -> Ranges:
    held: Ranges = [(0, length)]
    for cut in cuts:
        held = cut.of(held)
    return held


def _refused(name: str, problem: str) -> InputError:
    return InputError("wrong_memory", f"tensor {name!r} {problem}: give its parts yourself", where=name)


def _within(held: Ranges, first: int, count: int) -> Iterator[tuple[int, int]]:
    """Elements ``[first, first + count)`` of those held; neighbours joined."""
    at = 0
    for start, length in held:
        low, high = max(first, at), min(first + count, at + length)
        if low < high:
            yield start + low - at, high - low
        at += length


def _boxes(local: Any, shape: Axes, held: list[Ranges]) -> Iterator[Part]:
    for box in itertools.product(*(_placed(ranges) for ranges in held)):
        start, inner = tuple(start for start, _ in box), tuple(inner for _, inner in box)
        yield Part(local if all(len(ranges) == 1 for ranges in held) else local[inner], shape, start)


def _placed(ranges: Ranges) -> list[tuple[int, slice]]:
    """Where each range begins in the tensor, and where it is in what is held."""
    ends = list(itertools.accumulate(length for _, length in ranges))
    return [(start, slice(end - length, end)) for (start, length), end in zip(ranges, ends, strict=True)]


def _joined(ranges: Ranges) -> Ranges:
    """Neighbours as one; what is empty is one empty range."""
    joined: Ranges = []
    for start, length in ranges:
        if joined and sum(joined[-1]) == start:
            joined[-1] = (joined[-1][0], joined[-1][1] + length)
        else:
            joined.append((start, length))
    return joined or [(0, 0)]
