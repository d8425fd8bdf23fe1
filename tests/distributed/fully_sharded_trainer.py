"""One of four processes that train a network under torch's ``fully_shard``, and publish its shards."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import deltastore

from .sharding import PROCESSES

__all__ = ["ROUNDS", "Sharding", "network", "train"]

PATIENCE_SECONDS = 60.0

ROUNDS: tuple[tuple[str, ...], ...] = (
    ("step",),
    ("step",),
    (),
    ("step", "step", "step"),
    ("lr", "step"),
)
"""What happens before each version."""


@dataclass(frozen=True)
class Sharding:
    """``mesh``: its extents; the first of two is of replicas. ``options`` of AdamW are on."""

    name: str
    mesh: tuple[int, ...]
    options: tuple[str, ...]


def network() -> torch.nn.Module:
    """The same on every rank. Four ranks cannot share 13 rows evenly, and one gets none of 3."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Embedding(97, 11),
        torch.nn.Linear(11, 130),
        torch.nn.LayerNorm(130),
        torch.nn.Linear(130, 13, bias=False),
        torch.nn.Linear(13, 3),
    )


def train(rank: int, shardings: Sequence[Sharding], folder: Path) -> None:
    """Train ``ROUNDS`` under every sharding, each in the folder of its name.

    Rank 0 leaves the bits of every version as ``VERSION.npz``.
    """
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    rendezvous = (folder / "rendezvous").as_uri()
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=PROCESSES)
    try:
        for sharding in shardings:
            _train(rank, sharding, folder / sharding.name)
    finally:
        dist.destroy_process_group()


def _train(rank: int, sharding: Sharding, folder: Path) -> None:
    model = network()
    mesh = init_device_mesh("cpu", sharding.mesh, mesh_dim_names=("replica", "shard")[-len(sharding.mesh) :])
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.children():
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    options: dict[str, Any] = dict.fromkeys(sharding.options, True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, **options)
    run: list[str] = [secrets.token_hex(8)]
    dist.broadcast_object_list(run, src=0)
    with deltastore.open((folder / "stream").as_uri()) as stream:
        writer = stream.writer(
            dict(model.named_parameters()),
            cast=True,
            rank=rank,
            writers=PROCESSES,
            run=run[0],
            timeout=PATIENCE_SECONDS,
            optimizer=optimizer,
        )
        for number, actions in enumerate(ROUNDS):
            for at, action in enumerate(actions):
                if action == "lr":
                    optimizer.param_groups[0]["lr"] *= 0.5
                else:
                    _step(model, optimizer, seed=(number * 10 + at) * PROCESSES + rank)
            _leave(folder, writer.publish(step=number).version, model)


def _step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    """Every rank has a batch of its own."""
    torch.manual_seed(seed)
    optimizer.zero_grad()
    model(torch.randint(97, (8,))).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def _leave(folder: Path, version: int, model: torch.nn.Module) -> None:
    """All ranks gather the masters; rank 0 writes."""
    held: dict[str, Any] = dict(model.named_parameters())
    whole = {name: tensor.detach().full_tensor() for name, tensor in held.items()}
    if dist.get_rank():
        return
    bits = {name: tensor.bfloat16().view(torch.int16).numpy() for name, tensor in whole.items()}
    np.savez(folder / f"{version}.npz", allow_pickle=False, **bits)
