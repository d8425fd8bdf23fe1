"""A publish holds the packs that are on their way and little more, however large the delta is.

The model has 240 MiB, and so has a dense delta.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MIB = 1 << 20


def rise(pack_bytes: int, uploads: int, what: str) -> int:
    """How far memory rises in a process of its own, in bytes.

    What the C library keeps for later is not counted: large blocks go back at once.
    """
    script = str(Path(__file__).parent / "publish_peak.py")
    command = [sys.executable, script, str(240 * MIB), str(pack_bytes), str(uploads), what]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(MIB // 4)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found: int = json.loads(done.stdout)["rise"]
    return found


@pytest.mark.parametrize(
    ("pack_bytes", "uploads", "what"),
    [(32 * MIB, 4, "dense"), (8 * MIB, 2, "casting")],
)
def test_the_packs_on_their_way_and_64_mib(pack_bytes: int, uploads: int, what: str) -> None:
    assert rise(pack_bytes, uploads, what) < pack_bytes * uploads + 64 * MIB


def test_a_small_delta_takes_little_memory_for_a_model_of_any_size() -> None:
    assert rise(32 * MIB, 4, "small") < 16 * MIB
