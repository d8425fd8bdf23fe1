"""Folders below a root, opened step by step so that no symbolic link is ever followed.

A path is resolved one segment at a time against an open folder (``openat``), so a link that is planted
below the root, even while a call runs, cannot lead a read or a write out of it. The root itself may be
a link: the user chose it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deltastore.errors import InputError

__all__ = ["FolderIsFileError", "Folders", "link_in_the_way"]

_OPEN_ROOT: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OPEN_FOLDER: Final = _OPEN_ROOT | os.O_NOFOLLOW
_REMEMBERED: Final = 4096


class FolderIsFileError(Exception):
    """A segment that should be a folder is a file; never leaves this package."""


class Folders:
    """The folders below ``root``, an absolute path that need not exist. Blocks; raises ``OSError``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        # Folders whose own entry is known to be durable. Without this every write would have to sync each
        # folder above it, because whoever made one may have been killed before syncing its entry.
        self._durable: set[str] = set()

    @contextlib.contextmanager
    def existing(self, path: str) -> Iterator[int | None]:
        """Open the folder ``path`` ("" is the root) and yield its descriptor, or None if it is absent.

        Raises ``InputError("bad_key")`` for a symbolic link on the way and ``InputError("bad_url")`` for
        a root that is not a folder.
        """
        folder: int | None = None
        with contextlib.suppress(FileNotFoundError, FolderIsFileError):
            folder = self._descend(path, create=False)
        try:
            yield folder
        finally:
            if folder is not None:
                os.close(folder)

    @contextlib.contextmanager
    def created(self, path: str) -> Iterator[int]:
        """Like :meth:`existing`, but make what is absent, durably, the root included.

        Raises :class:`FolderIsFileError` as well, where a file has the name of a folder.
        """
        folder = self._descend(path, create=True)
        try:
            yield folder
        finally:
            os.close(folder)

    def _descend(self, path: str, *, create: bool) -> int:
        folder = self._open_root(create=create)
        walked = ""
        for segment in path.split("/") if path else ():
            walked = f"{walked}/{segment}" if walked else segment
            try:
                below = self._step(folder, segment, walked, create=create)
            finally:
                os.close(folder)
            folder = below
        return folder

    def _step(self, folder: int, segment: str, walked: str, *, create: bool) -> int:
        if create and walked not in self._durable:
            self._make(folder, segment, walked)
        try:
            return _open_below(folder, segment, walked)
        except FileNotFoundError:
            if not create:
                raise
        # It was durable once and somebody removed it since.
        self._make(folder, segment, walked)
        return _open_below(folder, segment, walked)

    def _make(self, folder: int, segment: str, walked: str) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(segment, dir_fd=folder)
        os.fsync(folder)
        if len(self._durable) >= _REMEMBERED:
            self._durable.clear()
        self._durable.add(walked)

    def _open_root(self, *, create: bool) -> int:
        try:
            return os.open(self.root, _OPEN_ROOT)
        except NotADirectoryError as error:
            message = f"{self.root} is not a folder, or lies below a file; give the folder of the store"
            raise InputError("bad_url", message) from error
        except FileNotFoundError:
            if not create:
                raise
        _make_durably(self.root)
        return os.open(self.root, _OPEN_ROOT)


def link_in_the_way(path: str) -> InputError:
    """Return the error for a symbolic link below the root."""
    message = f"{path} is a symbolic link, which could leave the store; put the real file or folder there"
    return InputError("bad_key", message, where=path, rule="DS001")


def _open_below(folder: int, segment: str, walked: str) -> int:
    try:
        return os.open(segment, _OPEN_FOLDER, dir_fd=folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        # Linux answers ENOTDIR for a link to a folder where others answer ELOOP, so look.
        raise _not_a_folder(folder, segment, walked) or error from error


def _not_a_folder(folder: int, segment: str, walked: str) -> Exception | None:
    try:
        mode = os.stat(segment, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return None
    if stat.S_ISLNK(mode):
        return link_in_the_way(walked)
    return None if stat.S_ISDIR(mode) else FolderIsFileError(walked)


def _make_durably(root: Path) -> None:
    missing = [root]
    while not os.path.lexists(missing[-1].parent):
        missing.append(missing[-1].parent)
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        above = os.open(folder.parent, _OPEN_ROOT)
        try:
            os.fsync(above)
        finally:
            os.close(above)
