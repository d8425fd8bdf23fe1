"""One object to look at: its bytes by range, and the stream that it stands in, if its place says so."""

from __future__ import annotations

import abc
import asyncio
import hashlib
import re
import stat
from pathlib import Path
from typing import Final

from deltastore.errors import InputError, NotFoundError
from deltastore.stores.base import Store
from deltastore.stores.local import LocalStore
from deltastore.stores.open import open_store

__all__ = ["Source", "open_source", "split_place"]

_HEX: Final = "[0-9a-f]"
_KEY: Final = re.compile(
    r"(?:(?P<root>.*)/)?(?P<key>"
    r"log/[0-9]{20}\.json"
    rf"|tables/{_HEX}{{64}}\.json"
    rf"|packs/[0-9]{{20}}/{_HEX}{{64}}\.pack"
    rf"|anchors/[0-9]{{20}}/{_HEX}{{32}}/[A-Za-z0-9_./-]+"
    rf"|files/{_HEX}{{64}}"
    rf"|claims/{_HEX}{{64}}\.json"
    r"|joining/[A-Za-z0-9_][A-Za-z0-9._-]*/[0-9]{20}/[a-z0-9]+\.json"
    r"|prepared/[0-9]{20}/[0-9]{20}/[a-z0-9]+\.json"
    r")",
    re.ASCII | re.DOTALL,
)
_PIECE: Final = 4 << 20
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://", re.ASCII)


def split_place(path: str) -> tuple[str, str] | None:
    """(root of the stream, key in it) of a path or URL that ends in a key of a stream; else None."""
    found = _KEY.fullmatch(path)
    return None if found is None else (found["root"] or "", found["key"])


class Source(abc.ABC):
    """An object of ``size`` bytes.

    ``shown`` is how to call it. ``key`` is its key in the stream that ``store`` holds; both are None where
    its place is none of a stream.
    """

    shown: str
    size: int
    key: str | None = None
    store: Store | None = None

    @abc.abstractmethod
    async def read(self, start: int, length: int) -> bytes:
        """Bytes ``[start, start + length)``, or as many of them as there are."""

    async def sha256(self) -> str:
        """The hash of all bytes, a piece in memory at a time."""
        digest = hashlib.sha256()
        for start in range(0, self.size, _PIECE):
            await asyncio.to_thread(digest.update, await self.read(start, _PIECE))
        return digest.hexdigest()

    async def close(self) -> None:
        """Release what is held open."""
        if self.store is not None:
            await self.store.close()


async def open_source(place: str) -> Source:
    """The object at a path, or at a URL of a store with the object's key behind it.

    A query of the URL (``?endpoint=...``) stands at its end. Raises ``NotFoundError("no_object")``,
    ``InputError`` (``bad_url``, ``bad_argument``) and ``StoreError``.
    """
    if _SCHEME.match(place) is None:
        return _Local(Path(place))
    store = open_store(place) if place.lower().startswith("file:") else None
    if isinstance(store, LocalStore):
        return _Local(store.root)
    return await _Remote.open(place)


class _Local(Source):
    def __init__(self, path: Path) -> None:
        self.shown = str(path)
        self._path = path
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError("no_object", f"there is no file {path}", where=str(path)) from None
        if stat.S_ISDIR(found.st_mode):
            message = f"{path} is a folder: name one file; 'deltastore log' lists the records of a stream"
            raise InputError("bad_argument", message, where=str(path))
        if not stat.S_ISREG(found.st_mode):
            raise InputError("bad_argument", f"{path} is no regular file", where=str(path))
        self.size = found.st_size
        place = split_place(str(path.absolute()))
        if place is not None:
            self.key = place[1]
            self.store = LocalStore(Path(place[0] or "/"))

    async def read(self, start: int, length: int) -> bytes:
        return await asyncio.to_thread(self._read, start, length)

    def _read(self, start: int, length: int) -> bytes:
        with self._path.open("rb") as file:
            file.seek(start)
            return file.read(max(min(length, self.size - start), 0))


class _Remote(Source):
    def __init__(self, shown: str, store: Store, key: str, size: int, *, in_stream: bool) -> None:
        self.shown = shown
        self.size = size
        self._objects = store
        self._key = key
        if in_stream:
            self.key, self.store = key, store

    @classmethod
    async def open(cls, place: str) -> _Remote:
        path, mark, query = place.partition("?")
        scheme, _, rest = path.partition("://")
        found = split_place(rest)
        root, key = found if found is not None else (rest.rpartition("/")[0], rest.rpartition("/")[2])
        if not root or not key:
            message = "write the URL of a store and the key of an object: s3://bucket/policy/log/...json"
            raise InputError("bad_url", message)
        store = open_store(f"{scheme}://{root}{mark}{query}")
        try:
            info = await store.stat(key)
            if info is None:
                raise NotFoundError("no_object", f"{store.url} has no object {key}", where=key)
        except BaseException:
            await store.close()
            raise
        shown = key if found is not None else place
        return cls(shown, store, key, info.size, in_stream=found is not None)

    async def read(self, start: int, length: int) -> bytes:
        wanted = max(min(length, self.size - start), 0)
        return await self._objects.get_range(self._key, start, wanted) if wanted else b""

    async def close(self) -> None:
        await self._objects.close()
