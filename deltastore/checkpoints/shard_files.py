"""The files of a checkpoint while they are written: one open at a time, filled by position, synced."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np

from deltastore.checkpoints.refusal import cannot
from deltastore.checkpoints.sharding import Shard

__all__ = ["ShardFiles", "sync_folder", "write_synced"]

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_REOPEN: Final = os.O_WRONLY | os.O_CLOEXEC


class ShardFiles:
    """Writes tensors into planned files. Every error of the file system is ``InputError("bad_argument")``."""

    def __init__(self, folder: Path, shards: Sequence[Shard]) -> None:
        self._folder = folder
        self._shards = shards
        self._descriptor = -1
        self._open = -1
        self._places = {
            tensor.spec.name: (number, len(shard.header) + tensor.begin)
            for number, shard in enumerate(shards)
            for tensor in shard.tensors
        }

    def create(self) -> None:
        """Make every file at its full length, with its header."""
        for shard in self._shards:
            path = self._folder / shard.name
            try:
                descriptor = os.open(path, _CREATE, 0o666)
                try:
                    os.ftruncate(descriptor, shard.nbytes)
                    _pwrite(descriptor, memoryview(shard.header), 0)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise cannot("write", path, error) from None

    def write(self, name: str, start: int, octets: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        """Put contiguous bytes at byte ``start`` of a tensor."""
        number, begin = self._places[name]
        path = self._folder / self._shards[number].name
        try:
            if number != self._open:
                self.close()
                self._descriptor = os.open(path, _REOPEN)
                self._open = number
            _pwrite(self._descriptor, octets.data, begin + start)
        except OSError as error:
            raise cannot("write", path, error) from None

    def close(self) -> None:
        """Sync and close the open file, if any."""
        if self._open < 0:
            return
        path = self._folder / self._shards[self._open].name
        descriptor, self._descriptor, self._open = self._descriptor, -1, -1
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise cannot("write", path, error) from None
        finally:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def write_synced(path: Path, content: bytes) -> None:
    """Create a file with this content, durable on return."""
    try:
        descriptor = os.open(path, _CREATE, 0o666)
        try:
            _pwrite(descriptor, memoryview(content), 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise cannot("write", path, error) from None


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise cannot("write", folder, error) from None


def _pwrite(descriptor: int, octets: memoryview, at: int) -> None:
    done = 0
    while done < len(octets):
        done += os.pwrite(descriptor, octets[done:], at + done)
