"""How a file gets its name: whole, durable, and where asked only if nobody had that name before.

A new file is written under a temporary name in its own folder, synced, and then renamed or linked. All
functions block, take the descriptor of the open folder, and raise ``OSError``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from typing import Final

__all__ = ["TEMPORARY_PREFIX", "create", "replace"]

#: Starts the name of an unfinished file. No key has such a segment, so no operation shows one.
TEMPORARY_PREFIX: Final = ".tmp-"

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace(folder: int, name: str, octets: memoryview) -> None:
    """Make ``name`` hold ``octets``, durably; whoever opens it sees all of the old or all of the new."""
    with _temporary(folder, octets) as temporary:
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


def create(folder: int, name: str, octets: memoryview) -> bool:
    """Make ``name`` hold ``octets`` unless it exists; return whether this call did. Durable either way."""
    with _temporary(folder, octets) as temporary:
        created = _link(folder, temporary, name)
    # Also when somebody else made it: they may have been killed before this line, and the caller is about
    # to rely on the file.
    os.fsync(folder)
    return created


@contextlib.contextmanager
def _temporary(folder: int, octets: memoryview) -> Iterator[str]:
    name = TEMPORARY_PREFIX + secrets.token_hex(16)
    file = os.open(name, _CREATE, 0o666, dir_fd=folder)
    try:
        try:
            _write(file, octets)
            os.fsync(file)
        finally:
            os.close(file)
        yield name
    finally:
        # A leftover harms nobody, and a failure to remove it must not hide what happened. After a rename
        # there is none.
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)


def _write(file: int, octets: memoryview) -> None:
    written = 0
    while written < len(octets):
        written += os.write(file, octets[written:])


def _link(folder: int, temporary: str, name: str) -> bool:
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        return True
    except OSError as error:
        # NFS repeats a request whose reply was lost, so any failure, "exists" included, may follow a link
        # that was made. The same inode under both names proves it. A link count of 2 alone would not: a
        # backup by hard links raises it too.
        if _same_file(folder, temporary, name):
            return True
        if isinstance(error, FileExistsError):
            return False
        if error.errno == errno.EPERM:
            # What link() answers on a file system that has no hard links.
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP)) from error
        raise


def _same_file(folder: int, temporary: str, name: str) -> bool:
    ours = os.stat(temporary, dir_fd=folder, follow_symlinks=False)
    try:
        theirs = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    # Any other failure to look is raised: the outcome is unknown then, and neither answer would be true.
    return os.path.samestat(ours, theirs)
