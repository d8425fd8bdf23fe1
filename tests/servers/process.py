"""A server's process: started on a leash, killed by its id, started again with the same arguments."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import leash


class ServerProcess:
    """One program that runs until :meth:`kill`, or until this process ends in whatever way.

    What it prints goes to the file ``log``.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._command = tuple(command)
        self._environment = dict(environment)
        self._log = log
        self._running = self._start()

    @property
    def pid(self) -> int:
        return self._running.pid

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone. It may be gone already."""
        self._running.kill()
        self._running.wait()

    def restart(self) -> None:
        self.kill()
        self._running = self._start()

    def check(self) -> None:
        """Raise with the end of what it printed if it has ended by itself."""
        if self._running.poll() is not None:
            said = self._log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{self._command[0]} ended with {self._running.returncode}: {said}")

    def _start(self) -> subprocess.Popen[bytes]:
        leashed = [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), *self._command]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                leashed,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the tests, which then kill it.
                start_new_session=True,
            )
