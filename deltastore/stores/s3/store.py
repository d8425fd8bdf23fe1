"""A store in a bucket of S3, or of a server that speaks its protocol."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, TypeVar

from deltastore.errors import DeltastoreError, InputError, NotFoundError
from deltastore.stores.address import BucketAddress
from deltastore.stores.base import (
    MAX_KEY_LENGTH,
    Data,
    ObjectInfo,
    Store,
    Tagged,
    as_octets,
    check_key,
    check_limit,
    check_prefix,
    check_range,
    no_object,
    too_short,
)
from deltastore.stores.hashing import checksum
from deltastore.stores.listing import listed
from deltastore.stores.loops import PerLoop
from deltastore.stores.retrying import Retrying, TransientError, outcome_unknown
from deltastore.stores.s3.multipart import upload
from deltastore.stores.s3.paging import page_after_page
from deltastore.stores.s3.reading import read_object, read_range, size_of
from deltastore.stores.s3.wording import RefusedError, cannot_create, explained

if TYPE_CHECKING:
    from deltastore.stores.s3.connection import Connection

__all__ = ["MULTIPART_BYTES", "S3Store"]

_Result = TypeVar("_Result")

#: From this size on an object is sent in parts.
MULTIPART_BYTES: Final = 64 * 1024 * 1024

_LARGEST: Final = 2**62
_CONDITION_UNKNOWN: Final = frozenset(
    {"NotImplemented", "InvalidArgument", "InvalidRequest", "UnsupportedHeader"}
)


class S3Store(Store):
    """The keys under ``prefix/`` of a bucket. Credentials come from the usual AWS chain, never from the URL.

    Every event loop that uses the store has a client of its own, made at first use; ``close`` ends it, and so
    does the end of the loop. Failed requests are repeated as ``retrying`` says; :class:`Retrying` names the
    defaults. Every upload carries its SHA-256, every whole object that comes back is compared with the one
    that the server has of it, and objects of :data:`MULTIPART_BYTES` or more are sent in parts.

    ``put_if_absent`` sends ``If-None-Match: *``. Where an attempt got no definite answer and a later one
    finds the key taken, nobody can tell by whom: that raises ``StoreError("store_failed")``, not False. A
    server that ignores the condition is not noticed here.
    """

    def __init__(self, address: BucketAddress, *, retrying: Retrying | None = None) -> None:
        self._address = address
        self._retrying = retrying if retrying is not None else Retrying()
        self._connections: PerLoop[Connection] = PerLoop(_maker(self._address, self._retrying))

    def __repr__(self) -> str:
        return f"S3Store({self.url!r})"

    @property
    def url(self) -> str:
        return self._address.url

    async def get(self, key: str, *, limit: int) -> bytes:
        check_limit(self._checked(key), limit)

        async def attempt(connection: Connection, _unknown: bool) -> bytes:
            return (await read_object(connection, key, limit=limit)).data

        return await self._run("read", key, attempt)

    async def get_changed(self, key: str, *, tag: str | None, limit: int) -> Tagged | None:
        check_limit(self._checked(key), limit)

        async def attempt(connection: Connection, _unknown: bool) -> Tagged | None:
            try:
                found = await read_object(connection, key, limit=limit, tag=tag)
            except RefusedError as refused:
                if refused.status == 304 and tag is not None:
                    return None
                raise
            return None if found.tag == tag else found

        return await self._run("read", key, attempt)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(self._checked(key), start, length)

        async def attempt(connection: Connection, _unknown: bool) -> bytes:
            if length > 0 and start + length <= _LARGEST:
                try:
                    return await read_range(connection, key, start, length)
                except RefusedError as refused:
                    if refused.status != 416:
                        raise
            # No range that HTTP can say, or that the object has: its size tells what to answer.
            size = await size_of(connection, key)
            if start + length > size:
                raise too_short(key, size, start, length)
            if length > 0:
                raise TransientError("the server refuses a range that the object has", unknown=False)
            return b""

        return await self._run("read", key, attempt)

    async def put(self, key: str, data: Data) -> None:
        octets = as_octets(self._checked(key), data)
        digest = await checksum(octets) if len(octets) < MULTIPART_BYTES else ""

        async def attempt(connection: Connection, _unknown: bool) -> None:
            if len(octets) < MULTIPART_BYTES:
                await _put(connection, "write", key, octets, ChecksumSHA256=digest)
            else:
                await upload(connection, key, octets, absent=False)

        await self._run("write", key, attempt)

    async def put_if_absent(self, key: str, data: Data) -> bool:
        octets = as_octets(self._checked(key), data)
        digest = await checksum(octets) if len(octets) < MULTIPART_BYTES else ""

        async def attempt(connection: Connection, unknown: bool) -> bool:
            if len(octets) >= MULTIPART_BYTES:
                return await upload(connection, key, octets, absent=True)
            try:
                await _put(connection, "create", key, octets, ChecksumSHA256=digest, IfNoneMatch="*")
            except RefusedError as refused:
                if refused.status != 412:
                    raise
                if unknown:
                    raise outcome_unknown("create", key) from None
                return False
            return True

        return await self._run("create", key, attempt)

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        check_prefix(prefix)
        beyond = check_prefix(after or "")
        connection = await self._run("list", "", _itself)
        try:
            pages = functools.partial(page_after_page, connection)
            async with aclosing(listed(pages, prefix, beyond)) as found:
                async for info in found:
                    yield info
        except RefusedError as refused:
            raise explained(refused, "list", "", self._address) from None

    async def delete(self, key: str) -> None:
        self._checked(key)

        async def attempt(connection: Connection, _unknown: bool) -> None:
            async with connection.attempt("delete", key):
                await connection.ask("delete_object", key)

        try:
            await self._run("delete", key, attempt)
        except NotFoundError:
            return

    async def stat(self, key: str) -> ObjectInfo | None:
        self._checked(key)

        async def attempt(connection: Connection, _unknown: bool) -> int:
            return await size_of(connection, key)

        try:
            return ObjectInfo(key, await self._run("stat", key, attempt))
        except NotFoundError:
            return None

    async def close(self) -> None:
        await self._connections.close()

    def _checked(self, key: str) -> str:
        if len(self._address.under) + len(check_key(key)) > MAX_KEY_LENGTH:
            message = f"{key[:80]}... is too long under the prefix of {self.url}; use a shorter prefix"
            raise InputError("bad_key", message, where=key, rule="DS001")
        return key

    async def _run(
        self, action: str, key: str, attempt: Callable[[Connection, bool], Awaitable[_Result]]
    ) -> _Result:
        async def once(unknown: bool) -> _Result:
            return await attempt(await self._connections.get(), unknown)

        try:
            return await self._retrying.run(action, key, once)
        except RefusedError as refused:
            raise self._meaning(refused, action, key) from None

    def _meaning(self, refused: RefusedError, action: str, key: str) -> DeltastoreError:
        if refused.status == 404 and refused.code in ("", "NoSuchKey"):
            return no_object(key)
        if action == "create" and (refused.status == 501 or refused.code in _CONDITION_UNKNOWN):
            return cannot_create(refused, key)
        return explained(refused, action, key, self._address)


async def _itself(connection: Connection, _unknown: bool) -> Connection:
    return connection


async def _put(connection: Connection, action: str, key: str, octets: memoryview, **parameters: str) -> None:
    async with connection.attempt(action, key, nbytes=len(octets)):
        with connection.body(octets) as body:
            await connection.ask("put_object", key, Body=body, **parameters)


def _maker(address: BucketAddress, retrying: Retrying) -> Callable[[], AsyncGenerator[Connection, None]]:
    # Not a method: what it makes must not keep the store alive that keeps it.
    def make() -> AsyncGenerator[Connection, None]:
        from deltastore.stores.s3.connection import connected

        return connected(address, retrying)

    return make
