"""One safetensors file, open for reading by position. Nothing is mapped: what is read is what is resident."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np

from deltastore.checkpoints.header import HEADER_BYTES, LENGTH_BYTES, StoredTensor, parse_header
from deltastore.checkpoints.refusal import bad_checkpoint, cannot

__all__ = ["TensorFile", "opened_regular"]

Octets = np.ndarray[Any, np.dtype[np.uint8]]

# O_NONBLOCK: opening a pipe that goes by a checkpoint's name must not wait for its other end.
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_PIECE: Final = 16 << 20


def opened_regular(path: Path) -> tuple[int, int]:
    """Open a regular file, or a symbolic link to one; return its descriptor and its size in bytes.

    Raises ``InputError("bad_checkpoint")``.
    """
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        raise cannot("open", path, error) from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise bad_checkpoint(path, "it is not a regular file; give a safetensors file or a folder of them")
    return descriptor, found.st_size


class TensorFile:
    """The tensors of one file. Reading needs no lock: every read names its own position."""

    def __init__(self, path: Path) -> None:
        """Open and check the header; ``InputError("bad_checkpoint" | "wrong_dtype")``."""
        self.path = path
        self._descriptor, size = opened_regular(path)
        try:
            text = self._header(size)
            self._data = LENGTH_BYTES + len(text)
            self.tensors: dict[str, StoredTensor] = parse_header(text, size - self._data, path)
        except BaseException:
            self.close()
            raise

    @property
    def data_start(self) -> int:
        """Where the bytes that tensors count from begin in the file."""
        return self._data

    def read_into(self, out: Octets, tensor: StoredTensor, start: int) -> None:
        """Fill ``out`` (uint8, contiguous) with the tensor's bytes from byte ``start`` of it on."""
        at = self._data + tensor.begin + start
        done = 0
        while done < len(out):
            piece = self._pread(min(_PIECE, len(out) - done), at + done)
            out[done : done + len(piece)] = np.frombuffer(piece, dtype=np.uint8)
            done += len(piece)

    def close(self) -> None:
        """Close the file; may be called more than once."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _header(self, size: int) -> bytes:
        if size < LENGTH_BYTES:
            raise bad_checkpoint(self.path, f"{size} bytes are too few for a safetensors file; copy it again")
        length = int.from_bytes(self._pread(LENGTH_BYTES, 0), "little")
        if length > HEADER_BYTES:
            problem = f"its header would have {length} bytes, above {HEADER_BYTES}: not a safetensors file"
            raise bad_checkpoint(self.path, f"{problem}; give another file")
        if length > size - LENGTH_BYTES:
            problem = f"its header of {length} bytes is longer than the file of {size}; copy it again"
            raise bad_checkpoint(self.path, problem)
        text = b""
        while len(text) < length:
            text += self._pread(length - len(text), LENGTH_BYTES + len(text))
        return text

    def _pread(self, length: int, at: int) -> bytes:
        try:
            piece = os.pread(self._descriptor, length, at)
        except OSError as error:
            raise cannot("read", self.path, error) from None
        if not piece:
            raise bad_checkpoint(self.path, f"it ended at byte {at} while it was read; copy it again")
        return piece
