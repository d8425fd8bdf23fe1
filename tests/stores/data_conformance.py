"""What a write takes and a read gives back: a part of the suite."""

from __future__ import annotations

import random

import pytest

from deltastore.errors import CorruptError, InputError
from deltastore.stores import Data, ObjectInfo, Store


class DataConformance:
    """What a write takes and a read gives back."""

    @pytest.mark.parametrize(
        "data",
        [b"", b"\0", b"x", b"\r\n\n\xff\xfe", bytes(range(256)) * 9, random.Random(1).randbytes(3_000_001)],
        ids=["empty", "nul", "one", "newlines", "all", "3MB"],
    )
    async def test_what_is_put_is_got(self, store: Store, data: bytes) -> None:
        await store.put("k", data)
        found = await store.get("k", limit=len(data))
        assert type(found) is bytes
        assert found == data
        assert await store.stat("k") == ObjectInfo("k", len(data))
        assert await store.put_if_absent("l", data)
        assert await store.get("l", limit=len(data)) == data

    async def test_every_kind_of_buffer_is_taken(self, store: Store) -> None:
        octets = bytes(range(48))
        buffers: list[Data] = [
            octets,
            bytearray(octets),
            memoryview(octets),
            memoryview(octets).cast("Q"),
            memoryview(octets).cast("B", (6, 8)),
            memoryview(b"##" + octets + b"##")[2:-2],
        ]
        for index, data in enumerate(buffers):
            await store.put(f"put{index}", data)
            assert await store.get(f"put{index}", limit=48) == octets
            assert await store.put_if_absent(f"created{index}", data)
            assert await store.get(f"created{index}", limit=48) == octets
        await store.put("empty", memoryview(b"").cast("B"))
        assert await store.get("empty", limit=0) == b""

    async def test_scattered_memory_is_refused(self, store: Store) -> None:
        for write in (store.put, store.put_if_absent):
            with pytest.raises(InputError) as caught:
                await write("k", memoryview(b"abcdef")[::2])
            assert caught.value.code == "bad_argument"
        assert await store.stat("k") is None

    async def test_an_object_is_a_copy(self, store: Store) -> None:
        data = bytearray(b"before")
        await store.put("k", data)
        assert await store.put_if_absent("l", data)
        data[:] = b"after!"
        assert await store.get("k", limit=6) == b"before"
        assert await store.get("l", limit=6) == b"before"

    async def test_limit(self, store: Store) -> None:
        await store.put("k", b"12345")
        assert await store.get("k", limit=5) == b"12345"
        for limit in (0, 4):
            with pytest.raises(CorruptError) as caught:
                await store.get("k", limit=limit)
            assert (caught.value.code, caught.value.where) == ("too_large", "k")
        with pytest.raises(InputError) as refused:
            await store.get("k", limit=-1)
        assert refused.value.code == "bad_argument"

    async def test_ranges_are_slices(self, store: Store) -> None:
        data = random.Random(2).randbytes(23)
        await store.put("k", data)
        for start in range(24):
            for length in range(24 - start):
                found = await store.get_range("k", start, length)
                assert type(found) is bytes
                assert found == data[start : start + length]

    @pytest.mark.parametrize(
        ("start", "length"), [(0, 6), (5, 1), (6, 0), (3, 3), (99, 0), (2**70, 1), (0, 2**70)]
    )
    async def test_a_range_past_the_end_is_corrupt(self, store: Store, start: int, length: int) -> None:
        await store.put("k", b"12345")
        with pytest.raises(CorruptError) as caught:
            await store.get_range("k", start, length)
        assert (caught.value.code, caught.value.where) == ("bad_length", "k")

    @pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, -1), (-1, -1), (-5, 5)])
    async def test_a_negative_range_is_refused(self, store: Store, start: int, length: int) -> None:
        await store.put("k", b"12345")
        with pytest.raises(InputError) as caught:
            await store.get_range("k", start, length)
        assert caught.value.code == "bad_argument"
