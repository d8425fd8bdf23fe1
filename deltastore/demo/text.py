"""The text that the demo learns: the sources of Python's own standard library, one token a byte."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any, Final

import numpy as np

from deltastore.errors import InputError

__all__ = ["VOCABULARY", "source_text", "windows"]

VOCABULARY: Final = 256
"""One token for each value of a byte: no tokenizer is needed."""

_MOST_BYTES: Final = 4 << 20
_LEAST_BYTES: Final = 256 << 10

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Tokens = np.ndarray[Any, np.dtype[np.int64]]


def source_text(folder: Path | None = None) -> Bytes:
    """The ``*.py`` files of ``folder`` (default: the standard library's), by name, one after the other.

    At most 4 MiB. Raises ``InputError("bad_argument")`` below 256 KiB, as where Python came without sources.
    """
    if folder is None:
        folder = Path(sysconfig.get_path("stdlib"))
    parts: list[bytes] = []
    left = _MOST_BYTES
    for path in sorted(folder.glob("*.py")):
        with path.open("rb") as file:
            parts.append(file.read(left))
        left -= len(parts[-1])
        if left == 0:
            break
    text = b"".join(parts)
    if len(text) < _LEAST_BYTES:
        raise InputError(
            "bad_argument",
            f"{folder} holds {len(text)} bytes of Python source, and the demo needs {_LEAST_BYTES}: "
            "run it with a Python that has its standard library as .py files",
            where=str(folder),
        )
    return np.frombuffer(text, np.uint8)


def windows(text: Bytes, draw: np.random.Generator, *, count: int, length: int) -> Tokens:
    """``count`` pieces of ``length`` tokens from anywhere in ``text``: int64, shape (count, length)."""
    starts = draw.integers(0, len(text) - length, count, endpoint=True)
    pieces: Tokens = text[starts[:, None] + np.arange(length)].astype(np.int64)
    return pieces
