"""A value for each event loop, across a fork."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_forked_process_neither_uses_nor_closes_what_its_parent_has() -> None:
    command = (sys.executable, "-m", "tests.stores.forking_user")
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["child 1 [] [1]", "parent 0 0 []"]
