"""Sealed objects that writers put for each other: each written once, each checked when it is read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Final, TypeVar

from deltastore.errors import DeltastoreError, NotFoundError
from deltastore.format.limits import VOTE_BYTES
from deltastore.format.sealed import Sealed
from deltastore.format.votes import writer_name
from deltastore.stores.base import Store
from deltastore.stores.settled import create_settled

__all__ = ["create_sealed", "fetch_of_writers", "fetch_sealed", "tell"]

_FETCHES: Final = 16
_TELL_SECONDS: Final = 5.0

Kind = TypeVar("Kind", bound=Sealed)


async def fetch_sealed(store: Store, key: str, kind: type[Kind], *, limit: int = VOTE_BYTES) -> Kind | None:
    """The object under ``key``, or None while it is absent. Raises ``CorruptError`` and ``StoreError``."""
    try:
        data = await store.get(key, limit=limit)
    except NotFoundError:
        return None
    return kind.from_bytes(data, key)


async def create_sealed(store: Store, key: str, value: Sealed) -> bool:
    """Create ``key`` as ``value``: whether it stands there now, and not that of another process.

    Raises ``StoreError``, and ``CorruptError`` when what stands there cannot be told.
    """
    standing = await create_settled(store, key, value.to_bytes(), limit=VOTE_BYTES)
    if standing is not None:
        type(value).from_bytes(standing, key)
    return standing is None


async def tell(store: Store, key: str, value: Sealed) -> None:
    """Create ``key`` for others to read, if that can be done in a few seconds: nothing rests on it."""
    with contextlib.suppress(DeltastoreError, TimeoutError):
        async with asyncio.timeout(_TELL_SECONDS):
            await create_sealed(store, key, value)


async def fetch_of_writers(
    store: Store, prefix: str, ranks: Iterable[int], kind: type[Kind]
) -> dict[int, Kind]:
    """What those of ``ranks`` that have put theirs under ``prefix`` have put."""
    wanted = sorted(ranks)
    if len(wanted) > _FETCHES:
        present = {info.key async for info in store.list(prefix)}
        wanted = [rank for rank in wanted if prefix + writer_name(rank) in present]
    found: dict[int, Kind] = {}
    for start in range(0, len(wanted), _FETCHES):
        some = wanted[start : start + _FETCHES]
        values = await asyncio.gather(
            *(fetch_sealed(store, prefix + writer_name(rank), kind) for rank in some)
        )
        found.update({rank: value for rank, value in zip(some, values, strict=True) if value is not None})
    return found
