"""Memory is a feature: no command holds the model, whatever its size.

The model has 400 MiB. A bound says what the command may hold at once: shards of an anchor (64 MiB), packs
(32 MiB) and chunks (2 MiB), each with its copy on the way to or from the store.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

MIB = 1 << 20
LAYERS = 16
SHAPE = (3200, 4096)


def write_checkpoint(folder: Path, step: int) -> None:
    """A checkpoint of 16 tensors of 25 MiB, made one by one; every 100th element moves with ``step``."""
    folder.mkdir(exist_ok=True)
    nbytes = SHAPE[0] * SHAPE[1] * 2
    header = {
        f"layers.{layer}.w": {
            "dtype": "BF16",
            "shape": list(SHAPE),
            "data_offsets": [layer * nbytes, (layer + 1) * nbytes],
        }
        for layer in range(LAYERS)
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for layer in range(LAYERS):
            bits = np.full(SHAPE[0] * SHAPE[1], 0x3F80 + layer, dtype="<u2")
            bits[::100] += step
            file.write(bits.tobytes())


def grown(*arguments: str) -> float:
    """Growth of the peak in MiB, in a process of its own."""
    script = str(Path(__file__).parent / "peak.py")
    done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: float = json.loads(done.stdout.strip().splitlines()[-1])["grown"] / MIB
    return found


def peak_of_validation(url: str) -> float:
    """All memory in MiB that a process takes which checks the content, many objects side by side."""
    program = [sys.executable, "-m", "deltastore.bench.validation_peak", url, "16"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout) / MIB


@pytest.mark.spec("DS100")
def test_no_command_holds_the_model(tmp_path: Path) -> None:
    url, checkpoint, out = f"file://{tmp_path}/stream", tmp_path / "checkpoint", str(tmp_path / "out")
    write_checkpoint(checkpoint, 0)
    assert grown("cli", "init", url, "--from", str(checkpoint)) < 224
    first = tmp_path / "first"
    checkpoint.rename(first)
    write_checkpoint(checkpoint, 1)
    assert grown("cli", "publish", url, str(checkpoint)) < 192
    assert grown("cli", "validate", url) < 192
    assert peak_of_validation(url) < 300
    assert grown("cli", "export", url, "--out", out) < 192
    assert (Path(out) / "model.safetensors").read_bytes()[-SHAPE[1] * 2 :] == (
        checkpoint / "model.safetensors"
    ).read_bytes()[-SHAPE[1] * 2 :]
    assert grown("engine", url, str(first)) < 64
