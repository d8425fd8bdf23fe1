"""One attempt to read an object or a range of one: lengths first, then bytes, then the checksum."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from deltastore.errors import StoreError
from deltastore.stores.base import Tagged, too_large, too_short
from deltastore.stores.hashing import checksum, sha256
from deltastore.stores.retrying import TransientError

if TYPE_CHECKING:
    from deltastore.stores.s3.connection import Connection

__all__ = ["read_object", "read_range", "size_of"]

#: Starts a tag where the server gives none. No ETag starts like this: they are in quotes.
_OURS: Final = "sha256:"
_PIECE_BYTES: Final = 1024 * 1024
_CONTENT_RANGE: Final = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})", re.ASCII)


async def read_object(connection: Connection, key: str, *, limit: int, tag: str | None = None) -> Tagged:
    """The object and its tag; ``RefusedError``: 304 where it still has ``tag``, 404 where it is absent.

    Raises ``CorruptError("too_large")`` by the length that the server announces, before reading.
    """
    asked = {} if tag is None or tag.startswith(_OURS) else {"IfNoneMatch": tag}
    async with connection.attempt("read", key) as timer:
        reply = await connection.ask("get_object", key, **asked)
        with contextlib.closing(reply["Body"]) as body:
            length = _length(reply, key)
            if length > limit:
                raise too_large(key, length, limit)
            connection.extend(timer, length)
            data = await _read(body, length)
    await _check(data, reply)
    etag = reply.get("ETag")
    return Tagged(data, etag if isinstance(etag, str) and etag else _OURS + (await sha256(data)).hex())


async def read_range(connection: Connection, key: str, start: int, length: int) -> bytes:
    """The bytes ``[start, start + length)``, at least one; ``RefusedError(416)`` where it ends before.

    Raises ``CorruptError("bad_length")`` by the range that the server announces, before reading.
    """
    async with connection.attempt("read", key) as timer:
        asked = f"bytes={start}-{start + length - 1}"
        reply = await connection.ask("get_object", key, Range=asked)
        with contextlib.closing(reply["Body"]) as body:
            _check_range(reply, key, start, length)
            connection.extend(timer, length)
            return await _read(body, length)


async def size_of(connection: Connection, key: str) -> int:
    """The size of the object in bytes; ``RefusedError(404)`` where it is absent."""
    async with connection.attempt("stat", key):
        return _length(await connection.ask("head_object", key), key)


def _length(reply: Mapping[str, Any], key: str) -> int:
    length = reply.get("ContentLength")
    if not isinstance(length, int) or length < 0:
        message = (
            f"cannot read {key}: the server does not tell its length; use a server that sends Content-Length"
        )
        raise StoreError("store_failed", message, where=key)
    return length


def _check_range(reply: Mapping[str, Any], key: str, start: int, length: int) -> None:
    announced = _CONTENT_RANGE.fullmatch(str(reply.get("ContentRange", "")))
    if announced is None:
        message = f"cannot read a part of {key}: the server ignores ranges; use another store"
        raise StoreError("store_unfit", message, where=key)
    first, last, size = map(int, announced.groups())
    if first == start and last < start + length - 1 and last == size - 1:
        raise too_short(key, size, start, length)
    if (first, last) != (start, start + length - 1) or reply.get("ContentLength") != length:
        raise TransientError("the server answers another range than asked", unknown=False)


async def _read(body: Any, length: int) -> bytes:
    # Its value is handed over without a copy, which joining pieces is not.
    found = io.BytesIO()
    while piece := await body.read(_PIECE_BYTES):
        found.write(piece)
        if found.tell() > length:
            break
    if found.tell() != length:
        raise TransientError(f"the reply has {found.tell()} bytes of {length}", unknown=False)
    return found.getvalue()


async def _check(data: bytes, reply: Mapping[str, Any]) -> None:
    """Compare with the checksum that the server has of the whole object, if it has one."""
    expected = str(reply.get("ChecksumSHA256", ""))
    # That of an upload in parts is one of checksums.
    if not expected or "-" in expected or reply.get("ChecksumType") == "COMPOSITE":
        return
    if await checksum(data) != expected:
        raise TransientError("the bytes are not those of the checksum that came with them", unknown=False)
