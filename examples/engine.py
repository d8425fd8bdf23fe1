"""A rollout engine: it follows the stream of a trainer, and each version is written into its live weights.

python examples/engine.py file:///tmp/policy 50
"""

from __future__ import annotations

import sys

import torch

import deltastore


def follow(url: str, until: int) -> None:
    """Keep a network at the newest version, up to version ``until``."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64))
    model.to(torch.bfloat16)
    with deltastore.open(url, wait=60) as stream:
        reader = stream.reader(model.state_dict())
        while reader.version is None or reader.version < until:
            if not reader.wait(timeout=60):
                raise SystemExit(f"nothing after version {reader.version} for a minute: is the trainer up?")
            new = reader.sync()
            print(f"version {new.version}: {new.changed} elements, paused {new.pause_seconds * 1000:.1f} ms")


if __name__ == "__main__":
    follow(sys.argv[1], int(sys.argv[2]))
