"""The keys of a bucket in byte order, also from servers that keep another one.

S3 lists whole keys in byte order: ``a-b``, ``a/b``. A server that keeps objects in folders lists a folder
where its own name stands: ``a/b``, ``a-b``. Where one page holds everything, sorting it is enough. Where it
does not, and the server is of the second kind, folders are listed one by one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Protocol

from deltastore.errors import InputError, StoreError
from deltastore.stores.base import ObjectInfo, check_key, check_prefix

__all__ = ["Page", "Pages", "listed", "out_of_order"]


@dataclass(frozen=True, slots=True)
class Page:
    """Keys and sizes of objects, and folders (each ends with ``/``), as the server orders them.

    ``more``: others follow. ``by_folder``: the server is known to sort folder by folder.
    """

    objects: list[tuple[str, int]]
    folders: list[str]
    more: bool
    by_folder: bool


class Pages(Protocol):
    """Asks a server for a listing."""

    def __call__(self, prefix: str, *, start: str, level: bool) -> AsyncIterator[Page]:
        """Yield what is under ``prefix`` and after ``start`` (``""``: everything).

        With ``level``: what has another ``/`` after the prefix is one folder, named once.
        """


def out_of_order() -> StoreError:
    """The error for a server whose pages do not ascend or do not end."""
    message = "the server's listing goes back or in circles; use a store that lists keys in byte order"
    return StoreError("store_failed", message)


async def listed(pages: Pages, prefix: str, after: str) -> AsyncGenerator[ObjectInfo, None]:
    """Yield the objects whose key starts with ``prefix`` and is greater than ``after``, in byte order.

    What is under no valid key is passed over. Raises what ``pages`` raises, and
    ``StoreError("store_failed")`` for a listing that comes back to keys before those already yielded.
    """
    if after > prefix and not after.startswith(prefix):
        return
    last = after
    async for page in pages(prefix, start=_start(prefix, after, level=False), level=False):
        found = _objects(page.objects, prefix, after)
        ascending = all(one.key < other.key for one, other in itertools.pairwise(found))
        found = sorted({info.key: info for info in found}.values(), key=_key)
        if found and found[0].key <= last:
            raise out_of_order()
        if page.more and (page.by_folder or not ascending):
            async for info in _by_folder(pages, prefix, last):
                yield info
            return
        for info in found:
            yield info
        last = found[-1].key if found else last


async def _by_folder(pages: Pages, prefix: str, after: str) -> AsyncIterator[ObjectInfo]:
    """The same from a server that sorts folder by folder: one listing for each, one level deep.

    Holds what is still to come of each folder on the path to the current key.
    """
    pending: list[str | ObjectInfo] = [prefix]
    while pending:
        item = pending.pop()
        if isinstance(item, ObjectInfo):
            yield item
            continue
        found: list[str | ObjectInfo] = []
        async for page in pages(item, start=_start(item, after, level=True), level=True):
            found += _objects(page.objects, prefix, after)
            found += [name for name in page.folders if _may_hold(name, prefix, after)]
        keys = {_key(entry): entry for entry in found}
        pending += [keys[key] for key in sorted(keys, reverse=True)]


def _objects(entries: Iterable[tuple[str, int]], prefix: str, after: str) -> list[ObjectInfo]:
    return [
        ObjectInfo(key, size)
        for key, size in entries
        if key.startswith(prefix) and key > after and _is_valid(key)
    ]


def _is_valid(key: str) -> bool:
    try:
        check_key(key)
    except InputError:
        return False
    return True


def _may_hold(folder: str, prefix: str, after: str) -> bool:
    try:
        check_prefix(folder)
    except InputError:
        return False
    return (
        folder.startswith(prefix)
        and len(folder) > len(prefix)
        and (folder > after or after.startswith(folder))
    )


def _key(item: str | ObjectInfo) -> str:
    # A folder sorts as its name with the slash, as the keys in it do.
    return item if isinstance(item, str) else item.key


def _start(prefix: str, after: str, *, level: bool) -> str:
    """A place to begin before every key greater than ``after``, in either order; or of this level only.

    The orders differ where a name goes on with ``-`` or ``.``, which sort before ``/``: so it ends there. And
    a server of folders passes over the whole folder whose name it is told to start after: so it is a lesser
    one.
    """
    if not after.startswith(prefix):
        return ""
    folder = prefix.rpartition("/")[0] + "/" if "/" in prefix else ""
    rest = after.removeprefix(folder)
    rest = rest.partition("/")[0] if level else rest
    cut = re.search(r"[-.]", rest)
    name = (rest if cut is None else rest[: cut.start()]).rstrip("/")
    if not name:
        return ""
    # "-" and "~" sort before and after every character that a name may go on with.
    lesser = "-" if name[-1] == "0" else chr(ord(name[-1]) - 1) + "~"
    return folder + name[:-1] + lesser
