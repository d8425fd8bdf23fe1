"""One of several processes of torch.distributed that train with flat FP32 shards, and publish them."""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import deltastore
from tests.doubles.megatron.gathering import bits_of_masters, bits_of_weights
from tests.doubles.megatron.parts import parts_of
from tests.doubles.megatron.rank import Rank
from tests.doubles.megatron.topology import Topology
from tests.doubles.megatron.values import initial_weights
from tests.doubles.optimizers import ApexOrderAdamW

__all__ = ["ROUNDS", "Scenario", "train"]

PATIENCE_SECONDS = 60.0
MOVING_RANK = 1

ROUNDS: tuple[tuple[str, ...], ...] = (
    ("step",),
    ("step",),
    ("lr", "step"),
    ("overflow",),
    ("move", "step"),
    ("step", "move"),
    ("step", "overflow", "step"),
    ("step",),
)
"""What happens before each version. ``move``: rank 1 offloads its optimizers' state and brings it back."""

_MAKERS: dict[str, Callable[[list[dict[str, Any]]], torch.optim.Optimizer]] = {
    "fused": lambda groups: torch.optim.AdamW(groups, lr=2e-4, fused=True),
    "foreach": lambda groups: torch.optim.AdamW(groups, lr=2e-4, foreach=True),
    "apex": lambda groups: ApexOrderAdamW(groups, lr=2e-4),
}


@dataclass(frozen=True)
class Scenario:
    """Who trains, with which optimizer (a key of ``_MAKERS``), and in buckets of what size."""

    name: str
    topology: Topology
    optimizer: str
    bucket_size: int | None = None


class _Warnings(logging.Handler):
    """What detection says that is worse than information."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep its text."""
        self.lines.append(record.getMessage())


def train(rank: int, scenarios: Sequence[Scenario], folder: Path) -> None:
    """Train ``ROUNDS`` in every scenario that has this rank, one by one, each in the folder of its name.

    Rank 0 leaves the bits of every version as ``VERSION.npz``, and every rank what detection warned of as
    ``warnings.RANK.json``.
    """
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    for scenario in scenarios:
        world = scenario.topology.world
        if rank < world:
            here = folder / scenario.name
            rendezvous = (here / "rendezvous").as_uri()
            dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=world)
            try:
                warnings = _train(rank, scenario, here)
            finally:
                dist.destroy_process_group()
            (here / f"warnings.{rank}.json").write_text(json.dumps(warnings))


def _train(rank: int, scenario: Scenario, folder: Path) -> list[str]:
    """What detection warned of."""
    warnings = _Warnings()
    logging.getLogger("deltastore.detect").addHandler(warnings)
    make = _MAKERS[scenario.optimizer]
    trainer = Rank(scenario.topology, make, initial_weights(), bucket_size=scenario.bucket_size)
    run: list[str] = [secrets.token_hex(8)]
    dist.broadcast_object_list(run, src=0)
    with deltastore.open((folder / "stream").as_uri()) as stream:
        writer = stream.writer(
            parts_of(trainer.optimizer.chained_optimizers),
            cast=True,
            rank=rank,
            writers=scenario.topology.world,
            run=run[0],
            timeout=PATIENCE_SECONDS,
            optimizer=trainer.optimizer,
        )
        steps = 0
        for actions in ROUNDS:
            for action in actions:
                steps += action == "step"
                _act(trainer, action, steps, rank)
            version = writer.publish(step=steps).version
            _leave(folder, scenario.topology, trainer, version)
    logging.getLogger("deltastore.detect").removeHandler(warnings)
    return warnings.lines


def _act(trainer: Rank, action: str, step: int, rank: int) -> None:
    if action in ("step", "overflow"):
        trainer.step(step, overflow=action == "overflow")
    elif action == "lr":
        trainer.set_lr(3e-5)
    elif rank == MOVING_RANK:
        for each in trainer.optimizer.chained_optimizers:
            each.move_state()


def _leave(folder: Path, topology: Topology, trainer: Rank, version: int) -> None:
    everybody: list[Any] = [None] * topology.world
    dist.all_gather_object(everybody, (trainer.masters(), trainer.weights()))
    if dist.get_rank():
        return
    bits = bits_of_masters(topology, [masters for masters, _ in everybody])
    weights = bits_of_weights(topology, [weights for _, weights in everybody])
    assert all(torch.equal(bits[name], weights[name]) for name in bits | weights)
    part = folder / f"{version}.part.npz"
    np.savez(part, allow_pickle=False, **{name: tensor.numpy() for name, tensor in bits.items()})
    part.rename(folder / f"{version}.npz")
