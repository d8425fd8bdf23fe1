"""A store in a bucket of S3, Google Cloud Storage or Azure, over obstore: a client in Rust."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from deltastore.errors import InputError, NotFoundError
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
from deltastore.stores.listing import listed
from deltastore.stores.loops import PerLoop
from deltastore.stores.objects.answers import ExistsError, OutOfRangeError, UnchangedError
from deltastore.stores.objects.requests import Answer, Requests, requests
from deltastore.stores.retrying import Retrying, outcome_unknown

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["CONCURRENCY", "ObjectsStore"]

#: Requests in flight unless the URL says otherwise.
CONCURRENCY: Final = 32

_MULTIPART_BYTES: Final = 64 * 1024 * 1024
_PART_BYTES: Final = 16 * 1024 * 1024
_PARTS_IN_FLIGHT: Final = 8
_LARGEST: Final = 2**62


class ObjectsStore(Store):
    """The keys under ``prefix/`` of a bucket (``s3+obstore``, ``gs``) or container (``az``).

    Credentials come from the environment as obstore takes them (``AWS_...``, ``GOOGLE_...``, ``AZURE_...``,
    or the machine's role), never from the URL. It is about twice as fast as :class:`S3Store`, knows no AWS
    profiles, and tells less about failures. obstore's own retries are off; failed requests are repeated as
    ``retrying`` says, and ``put_if_absent`` of a key that an attempt of the same call may have made raises
    ``StoreError("store_failed")``. An object that is created is sent in one request. Data other than
    ``bytes`` is copied, since a cancelled request may still be reading it.

    The suite of stores runs on S3. For ``gs`` and ``az`` no server is part of the tests: what is tested is
    that their URLs are read and their clients are made.
    """

    def __init__(self, address: BucketAddress, *, retrying: Retrying | None = None) -> None:
        self._address = address
        self._retrying = retrying if retrying is not None else Retrying()
        self._requests: PerLoop[Requests] = PerLoop(
            functools.partial(requests, address.concurrency or CONCURRENCY)
        )

    def __repr__(self) -> str:
        return f"ObjectsStore({self.url!r})"

    @property
    def url(self) -> str:
        return self._address.url

    @functools.cached_property
    def _client(self) -> ObjectStore:
        from deltastore.stores.objects.client import object_store

        return object_store(self._address, self._retrying)

    async def get(self, key: str, *, limit: int) -> bytes:
        return (await self._read(key, limit=limit, tag=None)).data

    async def get_changed(self, key: str, *, tag: str | None, limit: int) -> Tagged | None:
        try:
            found = await self._read(key, limit=limit, tag=tag)
        except UnchangedError:
            return None
        return None if found.tag == tag else found

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        check_range(self._checked(key), start, length)
        from deltastore.stores.objects.reading import read_range

        async def attempt(_unknown: bool) -> bytes:
            async with self._attempt("read", key, length) as answer:
                return await read_range(self._client, answer, self._path(key), key, start, length)

        if length > 0 and start + length <= _LARGEST:
            with contextlib.suppress(OutOfRangeError):
                return await self._retrying.run("read", key, attempt)
        info = await self.stat(key)
        if info is None:
            raise no_object(key)
        if length > 0 or start > info.size:
            raise too_short(key, info.size, start, length)
        return b""

    async def put(self, key: str, data: Data) -> None:
        octets = _owned(self._checked(key), data)
        await self._retrying.run("write", key, functools.partial(self._put, key, octets))

    async def put_if_absent(self, key: str, data: Data) -> bool:
        octets = _owned(self._checked(key), data)
        return await self._retrying.run("create", key, functools.partial(self._create, key, octets))

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        check_prefix(prefix)
        beyond = check_prefix(after or "")
        from deltastore.stores.objects.paging import page_after_page

        pages = functools.partial(page_after_page, self._client, self._address, self._ask)
        async with aclosing(listed(pages, prefix, beyond)) as found:
            async for info in found:
                yield info

    async def delete(self, key: str) -> None:
        self._checked(key)
        import obstore

        async def attempt(_unknown: bool) -> None:
            async with self._attempt("delete", key) as answer:
                await answer(obstore.delete_async(self._client, self._path(key)))

        with contextlib.suppress(NotFoundError):
            await self._retrying.run("delete", key, attempt)

    async def stat(self, key: str) -> ObjectInfo | None:
        self._checked(key)
        import obstore

        async def attempt(_unknown: bool) -> ObjectInfo:
            async with self._attempt("stat", key) as answer:
                found = await answer(obstore.head_async(self._client, self._path(key)))
            return ObjectInfo(key, found["size"])

        try:
            return await self._retrying.run("stat", key, attempt)
        except NotFoundError:
            return None

    async def close(self) -> None:
        await self._requests.close()

    async def _read(self, key: str, *, limit: int, tag: str | None) -> Tagged:
        check_limit(self._checked(key), limit)
        from deltastore.stores.objects.reading import read_object

        async def attempt(_unknown: bool) -> Tagged:
            async with self._attempt("read", key, limit) as answer:
                return await read_object(self._client, answer, self._path(key), key, limit=limit, tag=tag)

        return await self._retrying.run("read", key, attempt)

    async def _ask(self, question: Callable[[Answer], Awaitable[Any]]) -> Any:
        async def attempt(_unknown: bool) -> Any:
            async with self._attempt("list", "") as answer:
                return await question(answer)

        return await self._retrying.run("list", "", attempt)

    async def _put(self, key: str, octets: bytes, _unknown: bool) -> None:
        import obstore

        async with self._attempt("write", key, len(octets)) as answer:
            await answer(
                obstore.put_async(
                    self._client,
                    self._path(key),
                    octets,
                    use_multipart=len(octets) >= _MULTIPART_BYTES,
                    chunk_size=_PART_BYTES,
                    max_concurrency=_PARTS_IN_FLIGHT,
                )
            )

    async def _create(self, key: str, octets: bytes, unknown: bool) -> bool:
        import obstore

        try:
            async with self._attempt("create", key, len(octets)) as answer:
                await answer(
                    obstore.put_async(
                        self._client, self._path(key), octets, use_multipart=False, mode="create"
                    )
                )
        except ExistsError:
            if unknown:
                raise outcome_unknown("create", key) from None
            return False
        return True

    @contextlib.asynccontextmanager
    async def _attempt(self, action: str, key: str, nbytes: int = 0) -> AsyncIterator[Answer]:
        from deltastore.stores.objects.failures import judged

        requests = await self._requests.get()
        async with requests.gate:
            with judged(action, key, self._address.scheme):
                async with asyncio.timeout(self._retrying.patience(nbytes)):
                    yield requests.answer

    def _path(self, key: str) -> str:
        return self._address.under + key

    def _checked(self, key: str) -> str:
        if len(self._path(check_key(key))) > MAX_KEY_LENGTH:
            message = f"{key[:80]}... is too long under the prefix of {self.url}; use a shorter prefix"
            raise InputError("bad_key", message, where=key, rule="DS001")
        return key


def _owned(key: str, data: Data) -> bytes:
    octets = as_octets(key, data)
    return data if isinstance(data, bytes) else bytes(octets)
