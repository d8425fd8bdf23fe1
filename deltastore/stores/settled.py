"""Creating an object when a reply may be lost: what stands under the key is the answer, and no guess."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from deltastore.errors import NotFoundError, StoreError
from deltastore.stores.base import Store

__all__ = ["create_settled"]

_PAUSES: Final = (0.02, 0.1)
"""Seconds between tries, the most that each may be. A store has its own patience with its server."""

_SECONDS: Final = 90.0
"""For all tries together: a server that is gone takes the whole of that patience each time."""


async def create_settled(
    store: Store, key: str, data: bytes, *, limit: int, pauses: Sequence[float] = _PAUSES
) -> bytes | None:
    """Create ``key`` unless it exists, and find out what stands there: None for ``data``, else its bytes.

    ``data`` must be such that nobody else would write the same, as with a nonce. A failed or lost reply, and
    the answer that the key is taken, are settled by reading the object back; while it is absent the same
    bytes are put again. Raises ``StoreError`` when that leads nowhere: the object may stand there, or land
    yet, and the same call may be made again.
    """
    try:
        async with asyncio.timeout(_SECONDS):
            return await _settled(store, key, data, limit, pauses)
    except TimeoutError:
        message = f"cannot create {key} within {_SECONDS:g} s; the outcome is unknown: read the key back"
        raise StoreError("store_failed", message, where=key) from None


async def _settled(store: Store, key: str, data: bytes, limit: int, pauses: Sequence[float]) -> bytes | None:
    for pause in (*pauses, None):
        failure: StoreError | None = None
        try:
            if await store.put_if_absent(key, data):
                return None
        except StoreError as error:
            if error.code == "store_unfit":
                raise
            failure = error
        try:
            standing = await store.get(key, limit=limit)
            return None if standing == data else standing
        except NotFoundError:
            message = f"{key} is said to exist but cannot be read; look at the store, then try again"
            failure = failure or StoreError("store_failed", message, where=key)
        except StoreError as error:
            failure = failure or error
        if pause is None:
            raise failure
        await asyncio.sleep(random.uniform(0, pause))
    raise AssertionError("the last round returns or raises")
