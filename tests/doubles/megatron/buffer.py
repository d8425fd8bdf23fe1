"""A flat buffer of BF16 parameters and one of their FP32 gradients, shared by data-parallel ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .model import Block, LocalParam
from .ranges import Owned, lay_out

__all__ = ["FlatBuffer", "ValueOf", "cut_of", "fill"]

ValueOf = Callable[[str], torch.Tensor]


class FlatBuffer:
    """``params`` of a rank, which the ranks of ``group`` have too. ``value_of``: a whole tensor's weights."""

    def __init__(
        self, params: Sequence[LocalParam], value_of: ValueOf, group: Any, bucket_size: int | None
    ) -> None:
        self.params = tuple(params)
        self._group = group
        self._ranks, self._rank = dist.get_world_size(group), dist.get_rank(group)
        sizes = [param.elements for param in params]
        self._layout = lay_out(sizes, self._ranks, bucket_size=bucket_size)
        self.weights = torch.zeros(self._layout.size, dtype=torch.bfloat16)
        self.gradients = torch.zeros(self._layout.size)
        self._fill(self.weights, value_of)

    @property
    def owned(self) -> list[Owned]:
        """What this rank owns."""
        return list(self._layout.owned(self._ranks, self._rank))

    def weights_of(self, number: int) -> torch.Tensor:
        """A parameter, all of it, as the model sees it."""
        (laid,) = (laid for laid in self._layout.params if laid.number == number)
        return self.weights[laid.start : laid.end]

    def reduce(self, gradient_of: ValueOf) -> None:
        """This rank's gradients, averaged over all ranks. ``gradient_of``: a whole tensor's."""
        self.gradients.zero_()
        self._fill(self.gradients, gradient_of)
        self.gradients /= self._ranks
        dist.all_reduce(self.gradients, group=self._group)

    def gather(self) -> None:
        """What every rank owns, to all of them."""
        bits = self.weights.view(torch.uint8)
        width = self.weights.element_size()
        for start, end in self._layout.buckets:
            shards = list(bits[start * width : end * width].chunk(self._ranks))
            dist.all_gather(shards, shards[self._rank].clone(), group=self._group)

    def _fill(self, flat: torch.Tensor, value_of: ValueOf) -> None:
        for laid in self._layout.params:
            fill(flat[laid.start : laid.end], self.params[laid.number], value_of)


def fill(flat: torch.Tensor, param: LocalParam, value_of: ValueOf) -> None:
    """Write a parameter's elements into ``flat``, from whole tensors; padding stays."""
    at = 0
    for block in param.blocks:
        if block.name:
            flat[at : at + block.elements] = cut_of(value_of(block.name), block).reshape(-1)
        at += block.elements


def cut_of(tensor: Any, block: Block) -> Any:
    """The box of a whole tensor that a block holds: a view."""
    return tensor[tuple(slice(low, low + size) for low, size in zip(block.start, block.size, strict=True))]
