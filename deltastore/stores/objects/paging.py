"""Listings from obstore, as pages: it says neither how long a listing is nor how its server sorts."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import obstore

from deltastore.stores.listing import Page
from deltastore.stores.objects.requests import Answer

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

    from deltastore.stores.address import BucketAddress

__all__ = ["page_after_page"]

Ask: TypeAlias = Callable[[Callable[[Answer], Awaitable[Any]]], Awaitable[Any]]

#: What one request for a listing answers at most.
_PAGE_KEYS: Final = 1000


async def page_after_page(
    store: ObjectStore, address: BucketAddress, ask: Ask, prefix: str, *, start: str, level: bool
) -> AsyncIterator[Page]:
    """:class:`Pages` of a bucket, without the store's prefix. ``ask`` tries until there is an answer.

    obstore lists whole folders only, so there may be more than was asked for.
    """
    folder = address.under + prefix[: prefix.rfind("/") + 1]
    if level:
        found = await ask(lambda answer: answer(obstore.list_with_delimiter_async(store, folder)))
        names = [f"{name}/".removeprefix(address.under) for name in found["common_prefixes"]]
        yield Page(_entries(found["objects"], address.under), names, more=False, by_folder=True)
        return
    # Google and AWS sort by key. What stands behind another endpoint, or in Azure's hierarchies, may not.
    sorts = address.scheme == "gs" or (address.scheme == "s3+obstore" and address.endpoint is None)
    offset = address.under + start if start else None
    while True:
        batch = await ask(functools.partial(_batch, store, folder, offset))
        more = len(batch) >= _PAGE_KEYS
        yield Page(_entries(batch, address.under), [], more=more, by_folder=not sorts)
        if not more:
            return
        offset = batch[-1]["path"]


async def _batch(store: ObjectStore, folder: str, offset: str | None, answer: Answer) -> Sequence[ObjectMeta]:
    # A listing of obstore's that broke off cannot be resumed, so each page is one of its own.
    batches = obstore.list(store, folder, offset=offset, chunk_size=_PAGE_KEYS)
    try:
        batch: Sequence[ObjectMeta] = await answer(anext(batches))
    except StopAsyncIteration:
        return ()
    return batch


def _entries(found: Sequence[ObjectMeta], under: str) -> list[tuple[str, int]]:
    return [
        (meta["path"].removeprefix(under), meta["size"]) for meta in found if meta["path"].startswith(under)
    ]
