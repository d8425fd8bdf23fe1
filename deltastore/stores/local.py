"""A store in a folder of a file system, local or shared (NFS, Lustre and their like).

Implements SPEC.md section "Storage" on POSIX calls. A new object is written under a temporary name, synced,
and only then given its key: by ``rename`` where it may replace, by ``link`` where it may not.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import itertools
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from deltastore.errors import CorruptError, InputError
from deltastore.stores.arrival import create, replace
from deltastore.stores.base import (
    Data,
    ObjectInfo,
    Store,
    as_octets,
    check_key,
    check_limit,
    check_prefix,
    check_range,
    no_object,
    too_large,
    too_short,
)
from deltastore.stores.failures import explained
from deltastore.stores.folders import Folders, link_in_the_way
from deltastore.stores.walk import walk

__all__ = ["LocalStore"]

_Result = TypeVar("_Result")

# O_NONBLOCK: opening a pipe that somebody put under a key must not wait for its other end.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_LIST_BATCH: Final = 1000


class LocalStore(Store):
    """The store in the folder ``root``, which is created at the first write if it is absent.

    File work blocks, so it runs in the event loop's default thread pool, the one of
    ``asyncio.to_thread``. A cancelled call ends only when its file work has, so after any call nothing is
    still being read from or written to the caller's data.

    Symbolic links below the root are refused with ``InputError("bad_key")``, and what is neither file nor
    folder with ``CorruptError("bad_length")``; ``put`` replaces either, and ``list`` passes over both.
    Deleting leaves empty folders.
    A process killed half way leaves at most a file ``.tmp-*`` and empty folders, which no operation shows.
    A root that is not a folder raises ``InputError("bad_url")``.
    """

    def __init__(self, root: Path) -> None:
        if "\0" in str(root):
            raise InputError("bad_url", "the path of a store holds a NUL character; give the path without it")
        with explained(root, "open", ""):
            # What ".." means depends on the links before it; what the store is must not depend on when.
            fixed = Path(os.path.realpath(root)) if ".." in root.parts else root.absolute()
        self._folders = Folders(fixed)

    @property
    def root(self) -> Path:
        """The folder of the store, as an absolute path."""
        return self._folders.root

    @property
    def url(self) -> str:
        return self.root.as_uri()

    @property
    def probed_at_start(self) -> bool:
        """Not probed: creating by ``link()`` is what file systems are made for; ``deltastore doctor`` can."""
        return False

    async def get(self, key: str, *, limit: int) -> bytes:
        check_limit(check_key(key), limit)
        return await _in_thread(functools.partial(self._get, key, limit))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(check_key(key), start, length)
        return await _in_thread(functools.partial(self._get_range, key, start, length))

    async def put(self, key: str, data: Data) -> None:
        octets = as_octets(check_key(key), data)
        await _in_thread(functools.partial(self._put, key, octets))

    async def put_if_absent(self, key: str, data: Data) -> bool:
        octets = as_octets(check_key(key), data)
        return await _in_thread(functools.partial(self._put_if_absent, key, octets))

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        check_prefix(prefix)
        found = walk(self._folders, prefix, check_prefix(after or ""))
        while batch := await _in_thread(functools.partial(self._batch, prefix, found)):
            for info in batch:
                yield info

    async def delete(self, key: str) -> None:
        await _in_thread(functools.partial(self._delete, check_key(key)))

    async def stat(self, key: str) -> ObjectInfo | None:
        return await _in_thread(functools.partial(self._stat, check_key(key)))

    def _get(self, key: str, limit: int) -> bytes:
        with explained(self.root, "read", key), self._opened(key) as (file, size):
            if size > limit:
                raise too_large(key, size, limit)
            return _read(file, key, 0, size)

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        with explained(self.root, "read", key), self._opened(key) as (file, size):
            if start + length > size:
                raise too_short(key, size, start, length)
            return _read(file, key, start, length)

    def _put(self, key: str, octets: memoryview) -> None:
        path, _, name = key.rpartition("/")
        with explained(self.root, "write", key), self._folders.created(path) as folder:
            replace(folder, name, octets)

    def _put_if_absent(self, key: str, octets: memoryview) -> bool:
        path, _, name = key.rpartition("/")
        with explained(self.root, "create", key), self._folders.created(path) as folder:
            created = create(folder, name, octets)
            if not created:
                _refuse_other_than_file(folder, name, key)
            return created

    def _delete(self, key: str) -> None:
        path, _, name = key.rpartition("/")
        with explained(self.root, "delete", key), self._folders.existing(path) as folder:
            if folder is None:
                return
            if _size_of(folder, name, key) is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
            # Also when it is gone already: whoever removed it may have been killed before this.
            os.fsync(folder)

    def _stat(self, key: str) -> ObjectInfo | None:
        path, _, name = key.rpartition("/")
        with explained(self.root, "look at", key), self._folders.existing(path) as folder:
            size = None if folder is None else _size_of(folder, name, key)
        return None if size is None else ObjectInfo(key, size)

    def _batch(self, prefix: str, found: Iterator[ObjectInfo]) -> tuple[ObjectInfo, ...]:
        with explained(self.root, "list", prefix):
            return tuple(itertools.islice(found, _LIST_BATCH))

    @contextlib.contextmanager
    def _opened(self, key: str) -> Iterator[tuple[int, int]]:
        path, _, name = key.rpartition("/")
        with self._folders.existing(path) as folder:
            if folder is None:
                raise no_object(key)
            file = _open(folder, name, key)
        try:
            size = _size(os.fstat(file), key)
            if size is None:
                raise no_object(key)
            yield file, size
        finally:
            os.close(file)


def _open(folder: int, name: str, key: str) -> int:
    try:
        return os.open(name, _READ, dir_fd=folder)
    except FileNotFoundError as error:
        raise no_object(key) from error
    except OSError:
        # A link or a socket cannot be opened; say which it is rather than what open() thought of it.
        _size_of(folder, name, key)
        raise


def _size_of(folder: int, name: str, key: str) -> int | None:
    try:
        return _size(os.stat(name, dir_fd=folder, follow_symlinks=False), key)
    except FileNotFoundError:
        return None


def _refuse_other_than_file(folder: int, name: str, key: str) -> None:
    # A folder or a link occupies a name as well, but it is no object that a caller could rely on.
    with contextlib.suppress(FileNotFoundError):
        if _size(os.stat(name, dir_fd=folder, follow_symlinks=False), key) is None:
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))


def _size(found: os.stat_result, key: str) -> int | None:
    """Return the size of a regular file in bytes, and None for a folder, which is no object."""
    if stat.S_ISREG(found.st_mode):
        return found.st_size
    if stat.S_ISDIR(found.st_mode):
        return None
    if stat.S_ISLNK(found.st_mode):
        raise link_in_the_way(key)
    message = f"{key} is neither a file nor a folder; remove it from the store"
    raise CorruptError("bad_length", message, where=key, rule="DS063")


def _read(file: int, key: str, start: int, length: int) -> bytes:
    parts: list[bytes] = []
    done = 0
    while done < length:
        part = os.pread(file, length - done, start + done)
        if not part:
            raise too_short(key, start + done, start, length)
        parts.append(part)
        done += len(part)
    return b"".join(parts)


async def _in_thread(work: Callable[[], _Result]) -> _Result:
    running = asyncio.get_running_loop().run_in_executor(None, work)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        # Fetched so that the event loop does not report a failure that nobody looked at.
        running.exception()
        raise cancelled
    return running.result()
