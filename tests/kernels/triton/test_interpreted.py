"""What kernels answer, in Triton's interpreter: no GPU is needed.

The interpreter is chosen by an environment variable when triton is imported, so these cases are a process of
their own: ``TRITON_INTERPRET=1 python -m pytest tests/kernels/triton/interpreted/cases_*.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CASES = sorted((Path(__file__).parent / "interpreted").glob("cases_*.py"))


def interpreted(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )


def test_every_case_passes_in_the_interpreter() -> None:
    assert len(CASES) == 7
    result = interpreted("pytest", "-q", "-p", "no:cacheprovider", *map(str, CASES))
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]


def test_the_benchmark_checks_itself_without_a_gpu() -> None:
    result = interpreted("deltastore.kernels.bench_gpu", "--interpret-check")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("equals the reference") == 7
