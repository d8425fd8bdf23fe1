"""Fetching an object that something names: by length and sha256, so that it is the one meant or an error."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from deltastore.errors import CorruptError, NotFoundError
from deltastore.stores.base import Store

__all__ = ["fetch_named", "fetch_range", "fetch_sized", "lost_object", "wrong_length"]


async def fetch_named(store: Store, key: str, *, nbytes: int, sha256: str, named_by: str, rule: str) -> bytes:
    """The whole object, checked before anything looks at it.

    ``named_by`` says in a few words what names it, ``rule`` which requirement it breaks if it is another.
    Raises ``CorruptError``: ``lost_object``, ``too_large``, ``bad_length``, ``bad_hash``.
    """
    data = await fetch_sized(store, key, nbytes=nbytes, named_by=named_by, rule=rule)
    if await asyncio.to_thread(_sha256, data) != sha256:
        message = f"{key} does not have the sha256 that {named_by} names"
        raise CorruptError("bad_hash", message, where=key, rule=rule)
    return data


async def fetch_sized(store: Store, key: str, *, nbytes: int, named_by: str, rule: str) -> bytes:
    """The whole object, of which only the length is checked: as ``fetch_named``, without ``bad_hash``."""
    with _judged(key, named_by, rule):
        data = await store.get(key, limit=nbytes)
    if len(data) != nbytes:
        raise wrong_length(key, len(data), nbytes, named_by, rule)
    return data


async def fetch_range(store: Store, key: str, start: int, length: int, *, named_by: str, rule: str) -> bytes:
    """Some bytes of an object, all of them, for a caller who checks what they are.

    Raises ``CorruptError``: ``lost_object``, ``bad_length``.
    """
    with _judged(key, named_by, rule):
        data = await store.get_range(key, start, length)
    if len(data) != length:
        message = f"{key}: the store gave {len(data)} bytes of [{start}, {start + length})"
        raise CorruptError("bad_length", message, where=key, rule=rule, offset=start)
    return data


def wrong_length(key: str, found: int, said: int, named_by: str, rule: str) -> CorruptError:
    """The error for an object of ``found`` bytes, not those that are ``said`` of it."""
    message = f"{key} has {found} bytes where {named_by} names {said}"
    return CorruptError("too_large" if found > said else "bad_length", message, where=key, rule=rule)


def lost_object(key: str, named_by: str, rule: str = "DS063") -> CorruptError:
    """The error for an object that is named but absent."""
    return CorruptError("lost_object", f"{key} is gone, though {named_by} names it", where=key, rule=rule)


@contextmanager
def _judged(key: str, named_by: str, rule: str) -> Iterator[None]:
    """What a store says of an object, with the requirement that its namer knows."""
    try:
        yield
    except NotFoundError:
        raise lost_object(key, named_by) from None
    except CorruptError as error:
        error.rule = rule
        raise


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
