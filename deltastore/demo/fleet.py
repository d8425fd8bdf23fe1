"""The engines of the demo as the trainer's process sees them: started, listened to, and always ended."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from deltastore.demo.report import Report

__all__ = ["Engine", "EngineFailedError", "Fleet", "Start"]

_PATIENCE_SECONDS: Final = 120.0
_READ_BYTES: Final = 1 << 16
_SHOWN_CHARACTERS: Final = 4000


@dataclass(frozen=True, slots=True)
class Start:
    """How an engine comes to its first version: from a ``checkpoint``, or (None) from the stream's anchor."""

    name: str
    checkpoint: Path | None


class EngineFailedError(Exception):
    """An engine ended, or fell silent, before it was done. The message holds its standard error."""


class Engine:
    """One engine process. It is killed when its ``with`` block ends and it has not ended itself."""

    def __init__(self, start: Start, *, url: str, until: int, folder: Path) -> None:
        self.name = start.name
        self.bits = folder / f"{start.name}.bits"
        self.reports: dict[int, Report] = {}
        self._stderr = folder / f"{start.name}.stderr"
        self._unread = b""
        arguments = [url, "--until", str(until), "--bits", str(self.bits)]
        if start.checkpoint is not None:
            arguments += ["--checkpoint", str(start.checkpoint)]
        with self._stderr.open("wb") as stderr:
            # -P: a module of the same name in the current folder is not what runs.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "deltastore.demo.engine", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        if self._process.stdout is None:
            raise EngineFailedError(f"{self.name} has no output to read reports from")
        self._pipe = self._process.stdout

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def collect(self, *, timeout: float = 0.0) -> None:
        """Take in what the engine has reported, waiting up to ``timeout`` seconds for something to come.

        Raises ``EngineFailedError`` once it has ended in failure.
        """
        if self._pipe.closed or not select.select([self._pipe], [], [], timeout)[0]:
            return
        # Past the pipe's buffer, which would wait until it is full.
        data = os.read(self._pipe.fileno(), _READ_BYTES)
        if not data:
            self._pipe.close()
            self._expect_success()
        *lines, self._unread = (self._unread + data).split(b"\n")
        for report in map(Report.from_line, lines):
            self.reports[report.version] = report

    def wait_for(self, version: int, *, timeout: float = _PATIENCE_SECONDS) -> Report:
        """The report of ``version``; ``EngineFailedError`` if it does not come."""
        deadline = time.monotonic() + timeout
        while version not in self.reports:
            left = deadline - time.monotonic()
            if left <= 0 or self._pipe.closed:
                raise self._failure(f"did not report version {version}")
            self.collect(timeout=left)
        return self.reports[version]

    def finish(self, *, timeout: float = _PATIENCE_SECONDS) -> None:
        """Wait until the engine has ended itself; ``EngineFailedError`` if it fails or does not."""
        deadline = time.monotonic() + timeout
        while not self._pipe.closed:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._failure("did not end")
            self.collect(timeout=left)

    def _expect_success(self) -> None:
        """What has closed its output is about to end."""
        try:
            status = self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise self._failure("closed its output but did not end") from None
        if status != 0:
            raise self._failure(f"ended with exit status {status}")

    def _failure(self, what: str) -> EngineFailedError:
        said = self._stderr.read_text(encoding="utf-8", errors="replace").strip()
        shown = said[-_SHOWN_CHARACTERS:] or "(it wrote nothing to standard error)"
        return EngineFailedError(f"{self.name} {what}:\n{shown}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._pipe.close()


class Fleet:
    """All engines; a context manager. Each follows the stream at ``url`` up to version ``until``."""

    def __init__(self, starts: list[Start], *, url: str, until: int, folder: Path) -> None:
        self.engines: list[Engine] = []
        with ExitStack() as running:
            for start in starts:
                engine = Engine(start, url=url, until=until, folder=folder)
                self.engines.append(running.enter_context(engine))
            self._running = running.pop_all()

    def collect(self) -> None:
        """Take in what has been reported. Raises ``EngineFailedError`` if an engine has failed."""
        for engine in self.engines:
            engine.collect()

    def wait_for(self, version: int) -> None:
        """Wait until every engine has reported ``version``."""
        for engine in self.engines:
            engine.wait_for(version)

    def finish(self) -> None:
        """Wait until every engine has ended itself."""
        for engine in self.engines:
            engine.finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()
