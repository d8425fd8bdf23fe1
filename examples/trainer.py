"""A trainer: after every optimizer step, what changed becomes the next version of a stream.

python examples/trainer.py file:///tmp/policy 50
"""

from __future__ import annotations

import sys

import torch

import deltastore


def train(url: str, steps: int) -> None:
    """Train a small network and publish each step; the stream is made if it is not there."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-6)
    weights = dict(model.named_parameters())  # FP32 masters; engines get them rounded to BF16
    try:
        stream = deltastore.open(url)
    except deltastore.NotFoundError:
        stream = deltastore.create(url, weights, cast="BF16")
    with stream:
        # The optimizer's steps are inverted to find what changed: no copy of the weights is kept.
        writer = stream.writer(weights, cast=True, optimizer=optimizer)
        for step in range(1, steps + 1):
            inputs = torch.randn(32, 64)
            optimizer.zero_grad()
            (model(inputs) - inputs).square().mean().backward()
            optimizer.step()
            new = writer.publish(step=step)
            print(f"version {new.version}: {new.changed / new.elements:.2%} changed, {new.nbytes} bytes")


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2]))
