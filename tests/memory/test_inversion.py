"""A trainer that publishes by inversion holds no copy of its weights, at no time.

The model has 96 MiB in BF16, beside 192 MiB of FP32 weights and twice that of moments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MIB = 1 << 20
ELEMENTS = 48 * MIB


def peaks(every: int) -> dict[str, int]:
    """What a process of its own says of a version of so many steps."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(MIB // 4), "MALLOC_ARENA_MAX": "2"}
    command = [sys.executable, "-m", "tests.memory.inversion_peak", str(ELEMENTS), str(every)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=root)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("every", "most"), [(1, 32 * MIB), (4, 64 * MIB)])
def test_no_copy_is_made_and_old_values_are_kept_of_what_changed(every: int, most: int) -> None:
    found = peaks(every)
    assert 0 < found["changed"] < 0.5 * ELEMENTS
    assert found["opened"] < 32 * MIB
    assert found["published"] < min(most, 0.025 * 2 * ELEMENTS + 256e6)
    assert found["kept"] < 3 * found["changed"] + 4 * MIB
