"""One process of a sharded engine: it holds what vLLM would hold at its rank, and fetches only that.

deltastore init file:///tmp/qwen --from CKPT
python examples/engine_shard.py file:///tmp/qwen 8 3 50
"""

from __future__ import annotations

import sys

import torch

import deltastore
from deltastore import layouts


def follow(url: str, tp: int, rank: int, until: int) -> None:
    """Keep the parameters of rank ``rank`` of ``tp`` at the newest version, up to version ``until``."""
    with deltastore.open(url, wait=60) as stream:
        layout = layouts.vllm(stream.config(), tp=tp, rank=rank)
        # In an engine: dict(model.named_parameters()), once it has loaded its checkpoint.
        params = {param.name: torch.zeros(param.shape, dtype=torch.bfloat16) for param in layout.params}
        reader = stream.reader(params, layout=layout)
        while reader.version is None or reader.version < until:
            if not reader.wait(timeout=60):
                raise SystemExit(f"nothing after version {reader.version} for a minute: is the trainer up?")
            new = reader.sync()
            print(f"version {new.version}: {new.nbytes:,} bytes in {new.requests} requests")


if __name__ == "__main__":
    follow(sys.argv[1], *map(int, sys.argv[2:]))
