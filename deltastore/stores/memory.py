"""A store in the memory of this process: for tests, examples and dry runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from deltastore.errors import InputError
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

__all__ = ["MEMORY_STORES", "MemoryObjects", "MemoryStore"]

_SCHEME: Final = "memory://"


@dataclass(frozen=True, slots=True)
class MemoryObjects:
    """The objects of one named store, and the lock that makes its operations atomic between threads."""

    objects: dict[str, bytes] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


#: Every named store of this process, by name. Delete an entry to give its memory back.
MEMORY_STORES: Final[dict[str, MemoryObjects]] = {}


class MemoryStore(Store):
    """The store ``memory://name``. Equal names share their objects; closing one keeps them.

    "Durable" means as long as the process lives. Raises ``InputError("bad_url")`` for a URL of another
    form; a name obeys the rules of a key.
    """

    def __init__(self, url: str) -> None:
        name = _name_of(url)
        self._url = _SCHEME + name
        self._held = MEMORY_STORES.setdefault(name, MemoryObjects())

    @property
    def url(self) -> str:
        return self._url

    @property
    def probed_at_start(self) -> bool:
        """Not probed: it is a dictionary under a lock."""
        return False

    async def get(self, key: str, *, limit: int) -> bytes:
        check_limit(check_key(key), limit)
        found = self._find(key)
        if len(found) > limit:
            raise too_large(key, len(found), limit)
        return found

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(check_key(key), start, length)
        found = self._find(key)
        if start + length > len(found):
            raise too_short(key, len(found), start, length)
        return found[start : start + length]

    async def put(self, key: str, data: Data) -> None:
        copy = bytes(as_octets(check_key(key), data))
        with self._held.lock:
            self._held.objects[key] = copy

    async def put_if_absent(self, key: str, data: Data) -> bool:
        copy = bytes(as_octets(check_key(key), data))
        with self._held.lock:
            if key in self._held.objects:
                return False
            self._held.objects[key] = copy
            return True

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        check_prefix(prefix)
        beyond = check_prefix(after or "")
        with self._held.lock:
            matching = [key for key in self._held.objects if key.startswith(prefix) and key > beyond]
        # Keys are ASCII, so the order of str is the order of bytes.
        for key in sorted(matching):
            found = self._held.objects.get(key)
            if found is not None:
                yield ObjectInfo(key, len(found))

    async def delete(self, key: str) -> None:
        check_key(key)
        with self._held.lock:
            self._held.objects.pop(key, None)

    async def stat(self, key: str) -> ObjectInfo | None:
        found = self._held.objects.get(check_key(key))
        return None if found is None else ObjectInfo(key, len(found))

    def _find(self, key: str) -> bytes:
        found = self._held.objects.get(key)
        if found is None:
            raise no_object(key)
        return found


def _name_of(url: str) -> str:
    if url.startswith(_SCHEME):
        with contextlib.suppress(InputError):
            return check_key(url.removeprefix(_SCHEME).rstrip("/"))
    message = "a memory store is named memory://name; make the name like a key, of A-Z a-z 0-9 . _ - and /"
    raise InputError("bad_url", message)
