"""What the operating system refused, said as one :class:`StoreError` that names what to do."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deltastore.errors import StoreError
from deltastore.stores.folders import FolderIsFileError

__all__ = ["explained"]

_ADVICE: Final = {
    errno.ENOSPC: "free space under {root} and try again",
    errno.EDQUOT: "free space under {root} or raise its quota, and try again",
    errno.EACCES: "give this user permission to read and write {root}",
    errno.EPERM: "give this user permission to read and write {root}",
    errno.EROFS: "mount the file system of {root} writable",
    errno.EIO: "check the disk or the mount of {root} and try again",
    errno.ESTALE: "check the mount of {root} and try again",
    errno.EMFILE: "raise this process's limit on open files (ulimit -n) and try again",
    errno.ENFILE: "close files on this machine and try again",
    errno.EISDIR: "a folder of that name is under {root}; remove it or choose another key",
}
_UNFIT: Final = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})
_UNFIT_ADVICE: Final = "the file system of {root} lacks hard links or folder sync; use another one"


@contextlib.contextmanager
def explained(root: Path, action: str, key: str) -> Iterator[None]:
    """Turn an ``OSError`` of the body into a ``StoreError`` about ``action`` (a verb) on ``key``.

    The code is ``store_unfit`` where the file system lacks an operation, ``store_failed`` otherwise.
    """
    try:
        yield
    except FolderIsFileError as error:
        message = f"cannot {action} {key}: {error} is a file, not a folder; remove it or choose another key"
        raise StoreError("store_failed", message, where=key) from error
    except OSError as error:
        number = error.errno or 0
        unfit = number in _UNFIT
        advice = _UNFIT_ADVICE if unfit else _ADVICE.get(number, "check the file system of {root}")
        reason = error.strerror or type(error).__name__
        message = f"cannot {action} {key or 'the store'}: {reason}; {advice.format(root=root)}"
        raise StoreError("store_unfit" if unfit else "store_failed", message, where=key or None) from error
