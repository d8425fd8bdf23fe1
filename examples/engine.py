"""A rollout engine: it follows the stream of a trainer, and each version is written into its live weights.

python examples/engine.py file:///tmp/policy --until 50
"""

from __future__ import annotations

import argparse

import torch

import deltastore


def follow(url: str, until: int) -> None:
    """Keep a network at the newest version, up to version ``until``."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 64))
    model.to(torch.bfloat16)

    with deltastore.open(url) as stream:
        reader = stream.reader(model.state_dict())
        while reader.version is None or reader.version < until:
            if not reader.wait(timeout=60):
                raise SystemExit(f"no version after {reader.version} for a minute: is the trainer running?")
            new = reader.sync()
            print(
                f"version {new.version}: {new.changed} elements in {new.pause_seconds * 1000:.1f} ms",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url")
    parser.add_argument("--until", type=int, default=50)
    options = parser.parse_args()
    follow(options.url, options.until)
