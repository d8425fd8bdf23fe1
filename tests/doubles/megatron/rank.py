"""One rank of a training run: its parameters in two buffers, and its optimizers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
import torch.distributed as dist

from .buffer import FlatBuffer
from .model import local_params
from .optimizer import ChainedOptimizer, FlatOptimizer, Make
from .topology import Topology
from .values import gradient_of

__all__ = ["Rank"]


class Rank:
    """This process. ``optimizer``: dense parameters and experts, for they have other data-parallel groups."""

    def __init__(
        self,
        topology: Topology,
        make: Make,
        weights: Mapping[str, torch.Tensor],
        *,
        bucket_size: int | None = None,
    ) -> None:
        rank = dist.get_rank()
        self.place = topology.place(rank)
        params = local_params(topology, self.place)
        flat = []
        for expert in (False, True):
            groups = [dist.new_group(ranks) for ranks in topology.data_ranks(expert=expert)]
            (mine,) = (
                group
                for group, ranks in zip(groups, topology.data_ranks(expert=expert), strict=True)
                if rank in ranks
            )
            some = [param for param in params if param.expert == expert]
            flat.append(FlatOptimizer(FlatBuffer(some, weights.__getitem__, mine, bucket_size), make))
        self.dense, self.experts = flat
        self.optimizer = ChainedOptimizer(flat)

    def step(self, number: int, *, overflow: bool = False) -> None:
        """One step of all parameters. ``overflow``: the gradients are infinite, and it is left out."""
        for each, replica in ((self.dense, self.place.dp), (self.experts, self.place.edp)):
            each.step(partial(gradient_of, step=number, replica=replica), overflow=overflow)

    def set_lr(self, lr: float) -> None:
        """As a scheduler does."""
        for each in self.optimizer.chained_optimizers:
            for group in each.optimizer.param_groups:
                group["lr"] = lr

    def masters(self) -> dict[str, tuple[int, torch.Tensor]]:
        """Parameter -> the run of it that this rank owns: its first element, and the FP32 masters."""
        return {
            each.buffer.params[owned.number].name: (owned.first, shard)
            for each in self.optimizer.chained_optimizers
            for owned, shard in zip(each.owned, each.shards, strict=True)
        }

    def weights(self) -> dict[str, torch.Tensor]:
        """Parameter -> all of its BF16 weights on this rank, flat."""
        return {
            param.name: each.buffer.weights_of(number)
            for each in self.optimizer.chained_optimizers
            for number, param in enumerate(each.buffer.params)
        }
