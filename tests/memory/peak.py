"""Run one deltastore command or reader in this process and print the growth of its peak memory in bytes.

python peak.py cli ARGUMENT...            any command line
python peak.py engine URL CHECKPOINT      load a checkpoint's tensors, then follow to the newest version
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import tensorstore

# Pools of worker threads keep memory of their own: what is measured is one thread's worth.
os.environ["MALLOC_ARENA_MAX"] = "2"


def peak_bytes() -> int:
    """The peak of this very process: what getrusage says may be that of the process it was forked from."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


def run_cli(arguments: list[str]) -> int:
    from deltastore.cli.app import app

    for used in ("export", "validate", "writer.from_checkpoint"):
        import_module(f"deltastore.{used}")
    before = peak_bytes()
    app(arguments, standalone_mode=False)
    return peak_bytes() - before


def run_engine(url: str, checkpoint: str) -> int:
    import deltastore
    from deltastore.checkpoints.checkpoint import Checkpoint

    tensors: dict[str, np.ndarray[Any, Any]] = {}
    with Checkpoint.open(Path(checkpoint)) as opened, deltastore.open(url) as stream:
        for spec in opened.tensors:
            tensors[spec.name] = np.zeros(spec.shape, spec.dtype.storage)
            tensors[spec.name][...] = opened.bits(spec.name)
        reader = stream.reader(tensors)
        reader.sync(0)
        before = peak_bytes()
        synced = reader.sync()
    if synced.previous != 0 or synced.version == 0:
        raise SystemExit(f"nothing was applied: {synced}")
    return peak_bytes() - before


if __name__ == "__main__":
    if tensorstore is None:
        raise SystemExit("tensorstore must be loaded before the baseline is taken")
    mode, *rest = sys.argv[1:]
    grown = run_cli(rest) if mode == "cli" else run_engine(*rest)
    print("\n" + json.dumps({"grown": grown}))
