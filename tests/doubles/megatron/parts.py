"""What a flat shard holds of the checkpoint's tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from deltastore.layout.parts import Part, flat_parts

from .model import LocalParam, tensor_shapes
from .optimizer import FlatOptimizer

__all__ = ["parts_of", "parts_of_run"]


def parts_of(optimizers: Iterable[FlatOptimizer]) -> dict[str, list[Part]]:
    """The parts of every tensor that this rank publishes: its shards, but for what another rank has as well.

    Expert parameters, and those cut by tensor parallelism, are on no other rank.
    """
    told: dict[str, list[Part]] = {}
    for each in optimizers:
        for owned, shard in zip(each.owned, each.shards, strict=True):
            param = each.buffer.params[owned.number]
            if param.owner:
                for name, part in parts_of_run(param, shard, owned.first):
                    told.setdefault(name, []).append(part)
    return told


def parts_of_run(param: LocalParam, shard: Any, first: int) -> Iterator[tuple[str, Part]]:
    """The parts of tensors in ``shard``: the run of a parameter's elements from ``first`` on."""
    end, at = first + len(shard), 0
    for block in param.blocks:
        low, high = max(first, at), min(end, at + block.elements)
        if block.name and low < high:
            run = shard[low - first : high - first]
            box = block.start, block.size
            for part in flat_parts(run, tensor_shapes()[block.name], low - at, box=box):
                yield block.name, part
        at += block.elements
