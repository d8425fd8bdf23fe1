"""Listings of several pages on a real server, one that sorts folder by folder."""

from __future__ import annotations

import asyncio
import random
import secrets
from typing import Any

import pytest

from deltastore.stores import Store, open_store
from deltastore.stores.objects import paging
from deltastore.stores.s3 import S3Store
from tests.servers.server import Server

from .key_conformance import ORDERED_KEYS
from .operations import keys_of

PAGE_KEYS = 3


@pytest.fixture
def url(weed: Server) -> str:
    return weed.url(weed.bucket("listings"), secrets.token_hex(4))


async def test_pages_of_three_keys(url: str) -> None:
    def few(params: dict[str, Any], **_: object) -> None:
        params["MaxKeys"] = PAGE_KEYS

    async with open_store(url) as store:
        assert isinstance(store, S3Store)
        connection = await store._connections.get()
        connection.client.meta.events.register("before-parameter-build.s3.ListObjectsV2", few)
        await agrees_with_a_model(store)


async def test_batches_of_three_keys(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "_PAGE_KEYS", PAGE_KEYS)
    async with open_store(url.replace("s3:", "s3+obstore:")) as store:
        await agrees_with_a_model(store)


async def agrees_with_a_model(store: Store) -> None:
    keys = ORDERED_KEYS
    await asyncio.gather(*(store.put(key, b"") for key in keys))
    assert await keys_of(store) == keys
    choose = random.Random(7)
    beginnings = sorted({key[:length] for key in keys for length in range(len(key) + 1)})
    for _ in range(60):
        prefix, after = choose.choice(beginnings), choose.choice(beginnings)
        expected = [key for key in keys if key.startswith(prefix) and key > after]
        assert await keys_of(store, prefix, after) == expected, (prefix, after)
