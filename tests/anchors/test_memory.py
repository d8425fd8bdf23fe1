"""Memory does not grow with the model: 512 MiB through an anchor in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_an_anchor_takes_a_few_shards_of_memory(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.anchors.peak_memory", "anchor", str(tmp_path / "stream")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(result.stdout)
    assert found["same"] is True
    assert found["nbytes"] == 512 << 20
    assert found["written"] < 400
    assert found["read"] < 400
    assert found["part_nbytes"] == 256 << 20
    assert found["part"] < 450
