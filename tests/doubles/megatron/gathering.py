"""The whole checkpoint, put together from what all ranks hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from .buffer import cut_of
from .model import LocalParam, local_params, tensor_shapes
from .topology import Topology

__all__ = ["bits_of_masters", "bits_of_weights"]

FlatOf = Callable[[int, LocalParam], torch.Tensor]
Bits = dict[str, torch.Tensor]


def bits_of_masters(topology: Topology, ranks: Sequence[Mapping[str, tuple[int, torch.Tensor]]]) -> Bits:
    """The FP32 masters of all ranks as BF16 bits, int16 by tensor."""
    flats: dict[tuple[int, str], torch.Tensor] = {}
    for rank, masters in enumerate(ranks):
        for param in local_params(topology, topology.place(rank)):
            if param.name in masters:
                first, shard = masters[param.name]
                key = _sharers(topology, rank, param), param.name
                flat = flats.setdefault(key, torch.full((param.elements,), torch.nan))
                assert flat[first : first + len(shard)].isnan().all()
                flat[first : first + len(shard)] = shard

    def flat_of(rank: int, param: LocalParam) -> torch.Tensor:
        flat = flats[_sharers(topology, rank, param), param.name]
        assert not flat.isnan().any()
        return flat.bfloat16()

    return _assembled(topology, flat_of)


def bits_of_weights(topology: Topology, ranks: Sequence[Mapping[str, torch.Tensor]]) -> Bits:
    """The BF16 weights of all ranks, int16 by tensor."""
    return _assembled(topology, lambda rank, param: ranks[rank][param.name])


def _sharers(topology: Topology, rank: int, param: LocalParam) -> int:
    """The number of the group that has the parameter in shards."""
    groups = topology.data_ranks(expert=param.expert)
    return next(number for number, ranks in enumerate(groups) if rank in ranks)


def _assembled(topology: Topology, flat_of: FlatOf) -> Bits:
    """Every tensor from the parameters of every rank; copies of the same must be equal."""
    whole = {name: torch.full(shape, 1 << 20, dtype=torch.int32) for name, shape in tensor_shapes().items()}
    for rank in range(topology.world):
        for param in local_params(topology, topology.place(rank)):
            flat = flat_of(rank, param).view(torch.int16).int()
            at = 0
            for block in param.blocks:
                if block.name:
                    box = cut_of(whole[block.name], block)
                    bits = flat[at : at + block.elements].reshape(block.size)
                    assert ((box == 1 << 20) | (box == bits)).all()
                    box[...] = bits
                at += block.elements
    assert all((bits < 1 << 20).all() for bits in whole.values())
    return {name: bits.short() for name, bits in whole.items()}
