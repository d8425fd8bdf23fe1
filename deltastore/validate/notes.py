"""Notes of a validation: which versions were found sound, so that a later one need not look again.

A file of JSON lines, in a folder of the user's: first which stream it is about, then a line for each version.
The hash of a version's record pins everything that reading the version takes, so a note holds for that record
only. It says what was true when it was written: bytes that rot later are found without notes. What is found
to be damaged is no longer noted: a later line about a version stands for all before it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import time
from pathlib import Path
from typing import IO, Any, Final, Self

from deltastore.errors import InputError, StoreError
from deltastore.validate.chain import Committed
from deltastore.validate.checks import Level

__all__ = ["Notes"]

_KIND: Final = "validation"
_FORMAT: Final = 1
_MOST_LINE: Final = 4096
_SYNC_SECONDS: Final = 1.0

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_LEVELS: Final = {level.name.lower(): level for level in Level}
_REVOKED: Final = "none"


class Notes:
    """The notes in one open file, which no other validation may use meanwhile. Close it.

    Memory: a hash for each version.
    """

    def __init__(self, file: IO[bytes], path: Path, known: dict[bytes, Level]) -> None:
        self._file = file
        self._path = path
        self._unsynced = True
        self._known = known
        self._synced = time.monotonic()

    @classmethod
    def open(cls, path: Path, stream: str) -> Self:
        """The notes in ``path``, which is created if it is absent, of the stream of this identity.

        A last line that was cut short is dropped. Raises ``InputError("bad_argument")`` for a path where no
        file can be written, and a file that another validation is writing to, or that holds no notes or those
        of another stream.
        """
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise _unusable(path, "it is no regular file; give a regular file, or a path where none is")
        except FileNotFoundError:
            pass  # it is created
        except OSError as error:
            raise _unwritable(path, error) from None
        try:
            file = path.open("a+b")
        except OSError as error:
            raise _unwritable(path, error) from None
        try:
            _lock(file, path)
            return cls(file, path, _read(file, path, stream))
        except BaseException:
            file.close()
            raise

    def sound(self, committed: Committed, level: Level) -> bool:
        """Whether this very version was found sound, at this level or a higher one."""
        return self._known.get(bytes.fromhex(committed.sha256), 0) >= level

    def add(self, committed: Committed, level: Level) -> None:
        """Note that a version is sound."""
        self._known[bytes.fromhex(committed.sha256)] = level
        self._say(committed, level.name.lower())

    def revoke(self, committed: Committed) -> None:
        """Note that a version that was sound is so no longer."""
        if self._known.pop(bytes.fromhex(committed.sha256), None) is not None:
            self._say(committed, _REVOKED)

    def _say(self, committed: Committed, level: str) -> None:
        said = {"level": level, "sha256": committed.sha256, "version": committed.version}
        self._unsynced = True
        try:
            self._file.write(_line(said))
            self._file.flush()
        except OSError as error:
            raise self._failed(error) from None

    @property
    def due(self) -> bool:
        """Whether it is time to make notes durable."""
        return self._unsynced and time.monotonic() - self._synced >= _SYNC_SECONDS

    def sync(self) -> None:
        """Make all notes durable: this takes a while."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._failed(error) from None
        self._synced, self._unsynced = time.monotonic(), False

    def close(self) -> None:
        """Make all notes durable, and let the file go."""
        with self._file:
            self.sync()

    def _failed(self, error: OSError) -> StoreError:
        reason = error.strerror or str(error)
        message = f"{self._path}: {reason}; give a file in a folder with room for a line for each version"
        return StoreError("store_failed", message, where=str(self._path))


def _lock(file: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _unusable(path, "another validation is writing to it; give a file of its own") from None


def _read(file: IO[bytes], path: Path, stream: str) -> dict[bytes, Level]:
    header = _line({"format": _FORMAT, "kind": _KIND, "stream": stream})
    file.seek(0)
    first = file.readline(_MOST_LINE)
    if first != header and header.startswith(first):
        # Nothing yet, or whoever created the file was killed while it wrote this line.
        file.truncate(0)
        file.write(header)
        file.flush()
        return {}
    said = _parsed(first)
    if said is None or said.get("kind") != _KIND:
        raise _unusable(path, "it holds no notes of a validation; give another file")
    if first != header:
        raise _unusable(path, f"its notes are of stream {said.get('stream')}, not of {stream}; give another")
    return _known(file)


def _known(file: IO[bytes]) -> dict[bytes, Level]:
    """The notes; lines that are none count for nothing."""
    known: dict[bytes, Level] = {}
    whole = file.tell()
    while line := file.readline(_MOST_LINE):
        if line.endswith(b"\n"):
            whole = file.tell()
            said = _parsed(line) or {}
            level, record = str(said.get("level")), str(said.get("sha256"))
            if not _SHA256.fullmatch(record):
                continue
            name = bytes.fromhex(record)
            if level in _LEVELS:
                known[name] = max(_LEVELS[level], known.get(name, _LEVELS[level]))
            elif level == _REVOKED:
                known.pop(name, None)
    file.truncate(whole)
    return known


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _line(said: dict[str, Any]) -> bytes:
    return json.dumps(said, sort_keys=True).encode("ascii") + b"\n"


def _unusable(path: Path, problem: str) -> InputError:
    return InputError("bad_argument", f"{path}: {problem}", where=str(path))


def _unwritable(path: Path, error: OSError) -> InputError:
    return _unusable(path, f"{error.strerror}; give a regular file in a folder that can be written to")
