"""The demo's command line; the demo itself is tested in tests/demo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run


@pytest.mark.parametrize("status", [0, 1])
def test_its_options_and_its_status_pass_through(
    deltastore: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int
) -> None:
    asked: list[dict[str, Any]] = []

    def run(**options: Any) -> int:
        asked.append(options)
        return status

    monkeypatch.setattr("deltastore.demo.run.run", run)
    assert deltastore("demo").status == status
    assert deltastore("demo", "--steps", "3", "--json", "--store", tmp_path, "--keep").status == status
    assert asked == [
        {"steps": 20, "store": None, "keep": False, "as_json": False},
        {"steps": 3, "store": tmp_path, "keep": True, "as_json": True},
    ]


def test_it_takes_a_step_or_more(deltastore: Run) -> None:
    deltastore("demo", "--steps", "0").fails_with(2, "--steps")
