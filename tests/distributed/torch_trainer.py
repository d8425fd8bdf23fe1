"""One of four processes of torch.distributed that train a network: each has its shards of the F32 masters."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import deltastore

from .sharding import PROCESSES, assemble, parts, slices

__all__ = ["STEPS", "network", "train"]

STEPS = 10
PATIENCE_SECONDS = 60.0


class Scaled(torch.nn.Sequential):
    """Two layers, and a factor of no axes."""

    def __init__(self) -> None:
        super().__init__(torch.nn.Linear(11, 13), torch.nn.ReLU(), torch.nn.Linear(13, 5))
        self.scale = torch.nn.Parameter(torch.tensor(1.5))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs, scaled."""
        outputs: torch.Tensor = self[2](self[1](self[0](inputs)))
        return outputs * self.scale


def network() -> torch.nn.Module:
    """The same on every rank."""
    torch.manual_seed(0)
    return Scaled()


def train(rank: int, url: str, folder: Path) -> None:
    """Train ``STEPS`` steps; rank 0 leaves the gathered model of every version as ``VERSION.npz``."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    rendezvous = (folder / "rendezvous").as_uri()
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=PROCESSES)
    try:
        _train(rank, url, folder)
    finally:
        dist.destroy_process_group()


def _train(rank: int, url: str, folder: Path) -> None:
    replica = network()
    whole = {name: tensor.data for name, tensor in replica.named_parameters()}
    held = {name: torch.nn.Parameter(view.clone()) for name, view in slices(whole, rank).items()}
    optimizer = torch.optim.AdamW(held.values(), lr=1e-4)
    if rank == 0:
        deltastore.create(url, whole, cast="BF16").close()
    run: list[str] = [secrets.token_hex(8)]
    dist.broadcast_object_list(run, src=0)
    with deltastore.open(url) as stream:
        writer = stream.writer(
            parts({name: master.detach() for name, master in held.items()}, rank),
            cast=True,
            rank=rank,
            writers=PROCESSES,
            run=run[0],
            timeout=PATIENCE_SECONDS,
        )
        for step in range(1, STEPS + 1):
            _step(replica, held, optimizer, rank, step)
            published = writer.publish(step=step)
            _gather(held, whole)
            if rank == 0:
                _leave(folder, published.version, whole)


def _step(
    replica: torch.nn.Module,
    held: dict[str, torch.nn.Parameter],
    optimizer: torch.optim.Optimizer,
    rank: int,
    step: int,
) -> None:
    """Every rank has a batch of its own; gradients are summed, and each rank updates its shards."""
    torch.manual_seed(step * PROCESSES + rank)
    replica.zero_grad()
    replica(torch.randn(8, 11)).square().mean().backward()
    gradients = {}
    for name, parameter in replica.named_parameters():
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad)
        gradients[name] = parameter.grad
    for name, gradient in slices(gradients, rank).items():
        held[name].grad = gradient.clone()
    optimizer.step()


def _gather(held: dict[str, torch.nn.Parameter], whole: dict[str, torch.Tensor]) -> None:
    """The masters of all ranks into the replica of each."""
    everybody: list[Any] = [None] * PROCESSES
    dist.all_gather_object(everybody, {name: master.detach() for name, master in held.items()})
    assemble(everybody, whole)


def _leave(folder: Path, version: int, whole: dict[str, torch.Tensor]) -> None:
    bits = {name: tensor.to(torch.bfloat16).view(torch.int16).numpy() for name, tensor in whole.items()}
    part = folder / f"{version}.part.npz"
    np.savez(part, allow_pickle=False, **bits)
    part.rename(folder / f"{version}.npz")
