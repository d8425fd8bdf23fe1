"""Running the command line: in this process, where that is enough, or in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deltastore.cli import main


@dataclass(frozen=True)
class Ran:
    """What one command did."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """The JSON objects on stdout, one a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def json(self) -> Any:
        """The one JSON object on stdout."""
        (only,) = self.lines
        return only

    def fails_with(self, status: int, *words: str) -> None:
        """Assert the exit status, one line on stderr that has all ``words``, and no traceback."""
        assert self.status == status, self.err
        assert self.err.startswith("deltastore: error: ")
        assert self.err.count("\n") == 1
        for word in words:
            assert word in self.err


def run_here(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Ran:
    capsys.readouterr()
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return Ran(status, captured.out, captured.err)


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "deltastore", *(str(argument) for argument in arguments)]


def run_apart(*arguments: str | Path) -> Ran:
    done = subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "COLUMNS": "100"},
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def objects(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
