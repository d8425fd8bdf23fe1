"""The implementation under test: a process that answers requests, or hangs, dies or talks nonsense."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from typing import IO, Any

REPLY_BYTES = 64 << 20
"""Longest reply that is taken."""

_SHOWN = 200
_GRACE = 0.5
"""Seconds for what a process wrote just before it ended, or holds open after that."""


class NoReplyError(Exception):
    """Why there is no reply: one line."""


class Implementation:
    """A command, started when it is first asked something, and again after it had to be stopped.

    Not more than ``restarts`` times: who hangs on everything is not waited for everywhere.
    """

    def __init__(self, command: list[str], *, timeout: float, restarts: int) -> None:
        self._command = command
        self._timeout = timeout
        self._restarts = restarts
        self._process: _Process | None = None
        self._asked = 0

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request; ``NoReplyError``, and ``OSError`` where the command cannot be started."""
        if self._process is None:
            if self._restarts < 0:
                raise NoReplyError("not asked any more: it had to be started again too often")
            self._restarts -= 1
            self._process = _Process(self._command)
        self._asked += 1
        try:
            return self._process.ask({"id": self._asked, **request}, self._timeout)
        except NoReplyError:
            self.close()
            raise

    def close(self) -> None:
        """Stop the process, if it runs."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()


class _Process:
    """One run of the command, in a process group of its own, so that nothing of it stays."""

    def __init__(self, command: list[str]) -> None:
        pipe = subprocess.PIPE
        with contextlib.ExitStack() as opened:
            self._errors: IO[bytes] = opened.enter_context(tempfile.TemporaryFile())
            self._running = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=self._errors, start_new_session=True
            )
            opened.pop_all()
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        """Write a request, and wait for the line that answers it."""
        line = json.dumps(request).encode() + b"\n"
        writer = threading.Thread(target=self._write, args=(line,), daemon=True)
        writer.start()
        return self._parsed(self._line(timeout), request["id"])

    def stop(self) -> None:
        """End the process and all that it started, and wait for them."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._running.pid, signal.SIGKILL)
        self._running.wait()
        self._reader.join(_GRACE)
        self._errors.close()
        for stream in (self._running.stdin, self._running.stdout):
            # What somebody else still holds the other end of cannot be closed while it is read from.
            if stream is not None and not self._reader.is_alive():
                with contextlib.suppress(OSError):  # what could not be written any more
                    stream.close()

    def _line(self, timeout: float) -> bytes:
        """The next line; an empty one if the process has ended, though others may hold its output."""
        until, ended = time.monotonic() + timeout, False
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise NoReplyError(f"no reply within {timeout:g} seconds")
            with contextlib.suppress(queue.Empty):
                return self._lines.get(timeout=min(left, _GRACE if ended else 0.1))
            if ended:
                return b""
            ended = self._running.poll() is not None

    def _write(self, line: bytes) -> None:
        assert self._running.stdin is not None  # noqa: S101 (it is a pipe)
        with contextlib.suppress(OSError, ValueError):  # it is gone, which the reader finds out
            self._running.stdin.write(line)
            self._running.stdin.flush()

    def _read(self) -> None:
        assert self._running.stdout is not None  # noqa: S101 (it is a pipe)
        with contextlib.suppress(OSError, ValueError):
            while line := self._running.stdout.readline(REPLY_BYTES + 1):
                self._lines.put(line)
                if len(line) > REPLY_BYTES:
                    return
        self._lines.put(b"")

    def _parsed(self, line: bytes, asked: int) -> dict[str, Any]:
        if not line:
            raise NoReplyError(self._last_words())
        if len(line) > REPLY_BYTES:
            raise NoReplyError(f"a reply of more than {REPLY_BYTES} bytes")
        if not line.endswith(b"\n"):
            raise NoReplyError(f"ended in the middle of a reply: {line[:_SHOWN]!r}")
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError):
            raise NoReplyError(f"a reply that is not JSON: {line[:_SHOWN]!r}") from None
        if not isinstance(reply, dict) or reply.get("id") != asked:
            raise NoReplyError(f"no reply to request {asked}: {line[:_SHOWN]!r}")
        return reply

    def _last_words(self) -> str:
        try:
            status = f"with status {self._running.wait(timeout=1)}"
        except subprocess.TimeoutExpired:
            status = "its output, but not itself"
        self._errors.seek(max(self._errors.seek(0, os.SEEK_END) - 2000, 0))
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"ended {status}" + (f": {said[-1][:_SHOWN]}" if said else "")
