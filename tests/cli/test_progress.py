"""The progress bar: on a terminal only, on stderr only, gone at the end."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from deltastore.cli.progress import progress_bar
from tests.cli.running import command


def test_there_is_none_where_nobody_would_see_it(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("reading") as reach:
        assert reach is None
    assert capsys.readouterr().err == ""


def test_it_counts_bytes_on_the_terminal_and_leaves_stdout_alone(stream: Path) -> None:
    ours, theirs = pty.openpty()
    with open(ours, "rb", buffering=0) as terminal:
        validating = subprocess.Popen(
            command("validate", stream, "--json"),
            stdout=subprocess.PIPE,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        )
        os.close(theirs)
        with validating:
            shown = read_all(terminal.fileno())
            assert validating.stdout is not None
            out = validating.stdout.read()
            assert validating.wait(timeout=60) == 0
    assert b"checking file://" in shown
    assert b" of " in shown
    assert b"KiB" in shown
    assert out.startswith(b'{"url"')
    assert b"\x1b" not in out


def read_all(terminal: int) -> bytes:
    """Everything a terminal is sent; Linux ends it with an error instead of an empty read."""
    found = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            return found
        if not piece:
            return found
        found += piece
