"""The files below a root in the order of their keys, one folder at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator

from deltastore.errors import InputError
from deltastore.stores.base import ObjectInfo, check_prefix
from deltastore.stores.folders import Folders

__all__ = ["walk"]


def walk(folders: Folders, prefix: str, after: str) -> Iterator[ObjectInfo]:
    """Yield the files whose key starts with ``prefix`` and is greater than ``after``, in byte order.

    Between steps it holds what is still to come of each folder on the path to the current file, and no
    descriptor. What is no key, no regular file, or gone meanwhile is passed over. Blocks; raises
    ``OSError``, and ``InputError("bad_key")`` for a symbolic link on the way to the prefix.
    """
    start = prefix.rpartition("/")[0]
    pending: list[str | ObjectInfo] = [f"{start}/" if start else ""]
    while pending:
        item = pending.pop()
        if isinstance(item, ObjectInfo):
            yield item
            continue
        found = _scan(folders, item, prefix, after)
        found.sort(key=_key, reverse=True)
        pending.extend(found)


def _key(item: str | ObjectInfo) -> str:
    # A folder sorts as its name with the slash, as the keys in it do: "a-b" < "a/b" < "a0".
    return item if isinstance(item, str) else item.key


def _scan(folders: Folders, path: str, prefix: str, after: str) -> list[str | ObjectInfo]:
    found: list[str | ObjectInfo] = []
    with folders.existing(path.rstrip("/")) as folder:
        if folder is None:
            return found
        with os.scandir(folder) as entries:
            for entry in entries:
                item = _item(entry, path + entry.name, prefix, after)
                if item is not None:
                    found.append(item)
    return found


def _item(entry: os.DirEntry[str], key: str, prefix: str, after: str) -> str | ObjectInfo | None:
    try:
        check_prefix(key)
        if entry.is_dir(follow_symlinks=False):
            below = key + "/"
            overlaps = below.startswith(prefix) or prefix.startswith(below)
            return below if overlaps and (below > after or after.startswith(below)) else None
        if key.startswith(prefix) and key > after and entry.is_file(follow_symlinks=False):
            return ObjectInfo(key, entry.stat(follow_symlinks=False).st_size)
    except (InputError, FileNotFoundError):
        pass
    return None
