"""Fetching an object that something names: by length and sha256, so that it is the one meant or an error."""

from __future__ import annotations

import asyncio
import hashlib

from deltastore.errors import CorruptError, NotFoundError
from deltastore.stores.base import Store

__all__ = ["fetch_named", "fetch_range", "lost_object"]


async def fetch_named(store: Store, key: str, *, nbytes: int, sha256: str, named_by: str) -> bytes:
    """The whole object, checked before anything looks at it.

    ``named_by`` says in a few words what names it. Raises ``CorruptError``: ``lost_object``,
    ``too_large``, ``bad_length``, ``bad_hash``.
    """
    try:
        data = await store.get(key, limit=nbytes)
    except NotFoundError:
        raise lost_object(key, named_by) from None
    if len(data) != nbytes:
        message = f"{key} has {len(data)} bytes where {named_by} names {nbytes}"
        raise CorruptError("bad_length", message, where=key)
    if await asyncio.to_thread(_sha256, data) != sha256:
        raise CorruptError("bad_hash", f"{key} does not have the sha256 that {named_by} names", where=key)
    return data


async def fetch_range(store: Store, key: str, start: int, length: int, *, named_by: str) -> bytes:
    """Some bytes of an object, for a caller who checks them; ``CorruptError("lost_object")``."""
    try:
        return await store.get_range(key, start, length)
    except NotFoundError:
        raise lost_object(key, named_by) from None


def lost_object(key: str, named_by: str) -> CorruptError:
    """The error for an object that is named but absent."""
    return CorruptError("lost_object", f"{key} is gone, though {named_by} names it", where=key)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
