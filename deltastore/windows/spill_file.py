"""A temporary file for index rows that are more than memory holds; it has no name, and goes when closed."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np

from deltastore.errors import StoreError

__all__ = ["SpillFile"]


class SpillFile:
    """Arrays, one behind the other; it stands where ``TMPDIR`` says, and takes memory where that is a tmpfs.

    All calls raise ``StoreError("store_failed")`` where the file cannot be made, written or read.
    """

    def __init__(self) -> None:
        self._end = 0
        try:
            self._file = tempfile.TemporaryFile(prefix="deltastore-")  # noqa: SIM115
        except OSError as error:
            raise _failed(error) from None

    def append(self, data: np.ndarray[Any, Any]) -> int:
        """Write the bytes of an array; where they start."""
        start = self._end
        try:
            self._file.seek(start)
            self._file.write(np.ascontiguousarray(data).view(np.uint8).data)
            self._file.flush()
        except OSError as error:
            raise _failed(error) from None
        self._end += data.nbytes
        return start

    def read(self, length: int, at: int) -> bytes:
        """Bytes ``[at, at + length)``."""
        parts = []
        try:
            while length:
                part = os.pread(self._file.fileno(), length, at)
                if not part:
                    raise OSError("the file has been cut short")
                parts.append(part)
                length, at = length - len(part), at + len(part)
        except OSError as error:
            raise _failed(error) from None
        return b"".join(parts)

    def close(self) -> None:
        """Give the file back; may be called more than once."""
        self._file.close()


def _failed(error: OSError) -> StoreError:
    folder = tempfile.gettempdir()
    return StoreError(
        "store_failed",
        f"cannot keep index rows in a temporary file in {folder}: {error.strerror or error}; set TMPDIR to a "
        "folder with room",
        where=folder,
    )
