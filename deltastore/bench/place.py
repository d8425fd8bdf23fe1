"""A place of its own in somebody's store, for a benchmark: nothing else is there, and nothing stays."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from deltastore.stores.base import Store
from deltastore.stores.local import LocalStore
from deltastore.stores.memory import MEMORY_STORES, MemoryStore
from deltastore.stores.open import open_store

__all__ = ["below", "emptied", "own_place"]


def below(url: str, name: str) -> str:
    """The URL of what is under ``name`` in the store at ``url``; its query stays."""
    path, mark, query = url.partition("?")
    return f"{path.rstrip('/')}/{name}{mark}{query}"


@asynccontextmanager
async def own_place(url: str, kind: str) -> AsyncIterator[str]:
    """The URL of an empty place in the store at ``url``; whatever happens, it is emptied at the end.

    Raises ``InputError("bad_url")`` and what the store raises.
    """
    async with open_store(url):
        place = below(url, f"{kind}-{secrets.token_hex(8)}")  # of a URL that is known to be one
    async with open_store(place) as store:
        try:
            yield store.url
        finally:
            await emptied(store)


async def emptied(store: Store) -> None:
    """Remove every object of a store, and with the last one its folder or its name."""
    async for info in store.list(""):
        await store.delete(info.key)
    if isinstance(store, LocalStore):
        shutil.rmtree(store.root, ignore_errors=True)
    if isinstance(store, MemoryStore):
        MEMORY_STORES.pop(store.url.removeprefix("memory://"), None)
