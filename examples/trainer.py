"""A trainer: after every optimizer step, what changed becomes the next version of a stream.

python examples/trainer.py file:///tmp/policy --steps 50
"""

from __future__ import annotations

import argparse
import time

import torch

import deltastore


def open_or_create(url: str, weights: dict[str, torch.nn.Parameter]) -> deltastore.Stream:
    """The stream at ``url``; a new one begins with ``weights`` as version 0."""
    try:
        return deltastore.open(url)
    except deltastore.NotFoundError:
        return deltastore.create(url, weights, cast="BF16")


def train(url: str, steps: int) -> None:
    """Train a small network, and publish each step of it."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-6)
    weights = dict(model.named_parameters())  # FP32 masters; the engines get them rounded to BF16

    with open_or_create(url, weights) as stream:
        writer = stream.writer(weights, cast=True)
        for step in range(1, steps + 1):
            time.sleep(0.2)  # rollouts and rewards
            inputs = torch.randn(32, 64)
            loss = (model(inputs) - inputs).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            new = writer.publish(step=step)
            share = new.changed / new.elements
            print(f"step {step}: version {new.version}, {share:.2%} changed, {new.nbytes} bytes", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    train(options.url, options.steps)
