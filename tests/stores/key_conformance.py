"""Which keys there are, and in which order: a part of the suite."""

from __future__ import annotations

import random
from contextlib import aclosing

import pytest

from deltastore.errors import InputError
from deltastore.stores import ObjectInfo, Store

from .operations import OPERATIONS, keys_of

BAD_KEYS = [
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "a/../b",
    "../a",
    "a/./b",
    ".hidden",
    "a/.tmp-0",
    "-a",
    "a/-b",
    "a b",
    "a\\b",
    "a\0b",
    "a\n",
    "a%2e",
    "a:b",
    "a*",
    "é",
    "٣",
    "\udc80",
    "a" * 201,
    "/".join(["a" * 200] * 5) + "/" + "b" * 20,
]
# Byte order of whole keys, which is not the order of a walk that compares names alone.
ORDERED_KEYS = [
    "A",
    "_",
    "a-b",
    "a.b",
    "a/b-c",
    "a/b.c",
    "a/b/c",
    "a/b/d/e",
    "a/b0",
    "a/bb",
    "a/c",
    "a0",
    "a_",
    "aa/b",
    "b",
]


class KeyConformance:
    """Which keys there are, and in which order."""

    @pytest.mark.parametrize("operation", OPERATIONS)
    @pytest.mark.parametrize("key", BAD_KEYS, ids=range(len(BAD_KEYS)))
    async def test_a_bad_key_is_refused(self, store: Store, operation: str, key: str) -> None:
        with pytest.raises(InputError) as caught:
            await OPERATIONS[operation](store, key)
        assert caught.value.code == "bad_key"
        assert "\n" not in str(caught.value)
        assert await keys_of(store) == []

    @pytest.mark.parametrize(
        "prefix", ["/", "a//", "..", "a/../", "a/..", "./a", ".t", "a/-", "a\0", "a" * 201]
    )
    async def test_a_bad_prefix_is_refused(self, store: Store, prefix: str) -> None:
        for listing in (store.list(prefix), store.list("", after=prefix)):
            with pytest.raises(InputError) as caught:
                await anext(listing)
            assert caught.value.code == "bad_key"

    @pytest.mark.parametrize("key", ["a", "_", "0", "a.b-c_d", "a..", "a" * 200, "/".join(["ab1"] * 256)])
    async def test_an_unusual_key_is_taken(self, store: Store, key: str) -> None:
        assert await store.put_if_absent(key, b"x")
        assert await store.get_range(key, 0, 1) == b"x"
        assert await keys_of(store) == [key]
        assert await keys_of(store, prefix=key) == [key]
        assert await keys_of(store, after=key) == []
        await store.delete(key)
        assert await keys_of(store) == []

    async def test_an_empty_store_lists_nothing(self, store: Store) -> None:
        for prefix in ("", "a", "a/", "a/b/c"):
            assert await keys_of(store, prefix) == []
            assert await keys_of(store, prefix, after="a") == []

    async def test_listing_has_sizes_and_byte_order(self, store: Store) -> None:
        for key in random.Random(3).sample(ORDERED_KEYS, len(ORDERED_KEYS)):
            await store.put(key, b"x" * len(key))
        found = [info async for info in store.list("")]
        assert found == [ObjectInfo(key, len(key)) for key in ORDERED_KEYS]

    async def test_every_prefix_and_after_agree_with_a_model(self, store: Store) -> None:
        for key in ORDERED_KEYS:
            await store.put(key, b"")
        starts = {key[:length] for key in ORDERED_KEYS for length in range(len(key) + 1)}
        starts |= {"0", "Z", "a/a", "a/b/d/", "b0", "zz", "aa/b/c"}
        for prefix in sorted(starts):
            for after in (None, *sorted(starts)):
                expected = [
                    key for key in ORDERED_KEYS if key.startswith(prefix) and (after is None or key > after)
                ]
                assert await keys_of(store, prefix, after) == expected, (prefix, after)

    async def test_random_trees_agree_with_a_model(self, store: Store) -> None:
        choose = random.Random(4)
        present: dict[str, int] = {}
        ever: set[str] = set()
        for step in range(120):
            key = "/".join(choose.choices(["a", "a-", "a.b", "a0", "aa", "b"], k=choose.randint(1, 3)))
            clash = any(other.startswith(key + "/") or key.startswith(other + "/") for other in ever)
            if not clash:
                ever.add(key)
                present[key] = step
                await store.put(key, b"x" * step)
            if step % 5 == 4:
                gone = choose.choice(sorted(present))
                del present[gone]
                await store.delete(gone)
            if step % 10 == 9:
                found = [info async for info in store.list("")]
                assert found == [ObjectInfo(key, present[key]) for key in sorted(present)]
                after = choose.choice(found).key
                assert await keys_of(store, "a", after) == [
                    key for key in sorted(present) if key.startswith("a") and key > after
                ]

    async def test_a_listing_may_be_left_half_way(self, store: Store) -> None:
        for key in ORDERED_KEYS:
            await store.put(key, b"")
        async with aclosing(store.list("a")) as listing:  # type: ignore[type-var]
            assert (await anext(listing)).key == "a-b"
        assert await keys_of(store) == ORDERED_KEYS

    async def test_changes_during_a_listing_hurt_nothing_else(self, store: Store) -> None:
        for key in ORDERED_KEYS:
            await store.put(key, b"")
        seen = []
        async for info in store.list(""):
            seen.append(info.key)
            if info.key == "a-b":
                await store.delete("a/b/c")
                await store.put("a/b/cc", b"")
        assert [key for key in seen if key not in ("a/b/c", "a/b/cc")] == [
            key for key in ORDERED_KEYS if key != "a/b/c"
        ]
