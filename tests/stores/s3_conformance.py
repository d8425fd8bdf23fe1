"""The suite for stores in a bucket, where a few things differ."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from deltastore.errors import InputError
from deltastore.stores import Store

from .conformance import StoreConformance
from .key_conformance import BAD_KEYS, ORDERED_KEYS
from .operations import OPERATIONS, keys_of


class BucketConformance(StoreConformance):
    """The suite. A URL has a query, the prefix is part of a key, and races are slow."""

    @pytest.mark.parametrize("operation", OPERATIONS)
    async def test_a_bad_key_is_refused(  # type: ignore[override]
        self, store: Store, operation: str
    ) -> None:
        # All at once: a test's client costs more than they do.
        for key in BAD_KEYS:
            with pytest.raises(InputError) as caught:
                await OPERATIONS[operation](store, key)
            assert caught.value.code == "bad_key"
            assert "\n" not in str(caught.value)
        assert await keys_of(store) == []

    def test_the_url_is_fit_to_print(self, store: Store) -> None:
        assert "://" in store.url
        assert not set("@#\n ") & set(store.url)

    @pytest.mark.parametrize("key", ["a", "_", "0", "a.b-c_d", "a..", "a" * 200, "/".join(["ab1"] * 250)])
    async def test_an_unusual_key_is_taken(self, store: Store, key: str) -> None:
        await super().test_an_unusual_key_is_taken(store, key)

    async def test_every_prefix_and_after_agree_with_a_model(self, store: Store) -> None:
        # Not every: each is a request, or more.
        await asyncio.gather(*(store.put(key, b"") for key in ORDERED_KEYS))
        beginnings = sorted({key[:length] for key in ORDERED_KEYS for length in range(len(key) + 1)})
        beginnings += ["0", "Z", "a/a", "a/b/d/", "b0", "zz", "aa/b/c"]
        pairs = random.Random(8).sample([*itertools.product(beginnings, beginnings)], 150)
        for prefix, after in pairs:
            expected = [key for key in ORDERED_KEYS if key.startswith(prefix) and key > after]
            assert await keys_of(store, prefix, after) == expected, (prefix, after)

    async def test_ranges_are_slices(self, store: Store) -> None:
        data = bytes(range(7))
        await store.put("k", data)
        for start in range(8):
            for length in range(8 - start):
                assert await store.get_range("k", start, length) == data[start : start + length]

    async def test_one_of_many_racing_creators_wins(self, store: Store) -> None:
        # SeaweedFS has them wait for each other in steps of a second.
        contents = [bytes([number]) * (20_000 + number) for number in range(6)]
        won = await asyncio.gather(*(store.put_if_absent("log/0", data) for data in contents))
        assert won.count(True) == 1
        assert await store.get("log/0", limit=30_000) == contents[won.index(True)]
        assert await keys_of(store) == ["log/0"]
