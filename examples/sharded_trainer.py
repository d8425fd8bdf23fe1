"""Trainer processes that each hold a shard of the model, and publish it together.

torchrun --nproc-per-node 4 examples/sharded_trainer.py file:///tmp/sharded 50
"""

from __future__ import annotations

import contextlib
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import deltastore


def train(url: str, steps: int) -> None:
    """Train a small network under FSDP2 and publish each step; rank 0 makes the stream."""
    dist.init_process_group("gloo")
    rank, writers = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64))
    if rank == 0:
        with contextlib.suppress(deltastore.ConflictError):  # a restarted trainer goes on
            deltastore.create(url, dict(model.named_parameters()), cast="BF16").close()
    run = [deltastore.new_run()]  # a name for this start, by which the processes find each other
    dist.broadcast_object_list(run)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-6)
    with deltastore.open(url) as stream:
        weights = dict(model.named_parameters())
        writer = stream.writer(
            weights, cast=True, rank=rank, writers=writers, run=run[0], optimizer=optimizer
        )
        for step in range(1, steps + 1):
            inputs = torch.randn(32, 64)
            optimizer.zero_grad()
            (model(inputs) - inputs).square().mean().backward()
            optimizer.step()
            new = writer.publish(step=step)
            if rank == 0:
                print(f"version {new.version}: {new.changed / new.elements:.2%} changed")
    dist.destroy_process_group()


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2]))
