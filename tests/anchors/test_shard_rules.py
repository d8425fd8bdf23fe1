"""A whole shard against all of its rules, as validation and readers of ranges hold it to them."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable

import google_crc32c
import numpy as np
import pytest

from deltastore.anchors.shard_rules import SUM, Sums, sum_of
from deltastore.anchors.sharding import ShardGrid
from deltastore.errors import CorruptError
from deltastore.format.table import Array, SlabRule
from deltastore.validate.objects.anchors import Shard
from deltastore.validate.objects.streamed import Named
from tests.doubles.stores import memory_store

ARRAY = Array(
    pattern="layers.*.w",
    dtype="BF16",
    shape=(5, 4),
    members=(((0, 3),),),
    chunk=(1, 2, 4),
    slab=SlabRule(by="common", of=0, count=0),
)
GRID = ShardGrid(ARRAY.grid, (2, 4, 1))
"""Two shards of eight places, with six chunks and three: the others would lie outside the array."""

SIZE = 8 * 2 + 4
INDEX = 8 * 16 + 4
NONE = ((1 << 64) - 1, (1 << 64) - 1)


def sealed(data: bytes) -> bytes:
    checksum: int = google_crc32c.value(data)
    return data + checksum.to_bytes(4, "little")


def shard_of(shard: int, order: Callable[[list[int]], list[int]] = list) -> bytearray:
    """An encoded shard, whose chunks follow each other in this order; element i of chunk c is 16 c + i."""
    chunks, places = GRID.inside(shard)
    entries, body = [NONE] * 8, b""
    for at in order(list(range(len(chunks)))):
        entries[int(places[at])] = (len(body), SIZE)
        body += sealed((16 * chunks[at] + np.arange(8)).astype("<u2").tobytes())
    return bytearray(body + sealed(np.array(entries, "<u8").tobytes()))


def sums_of_all() -> Sums:
    sums = np.zeros(len(ARRAY.grid), SUM)
    for chunk in range(len(sums)):
        sums[chunk] = sum_of(sealed((16 * chunk + np.arange(8)).astype("<u2").tobytes()))
    return sums


async def checked(data: bytearray, shard: int, *, sums: bool = True) -> CorruptError | None:
    store = memory_store()
    await store.put("here", bytes(data))
    named = Named("here", len(data), hashlib.sha256(data).hexdigest(), "its inventory", "DS073")
    try:
        await Shard(ARRAY, GRID, shard, sums_of_all() if sums else None).check(store, named)
    except CorruptError as error:
        found = error
    else:
        return None
    again = pickle.loads(pickle.dumps(found))
    assert (again.rule, again.offset, again.tensor) == (found.rule, found.offset, found.tensor)
    assert (found.code, found.where) == ("bad_anchor", "here")
    return found


def entered(data: bytearray, place: int, offset: int, length: int) -> None:
    """Change an entry of the index, and make the checksum of the index right again."""
    entries = np.frombuffer(bytes(data[-INDEX:-4]), "<u8").reshape(-1, 2).copy()
    entries[place] = offset, length
    data[-INDEX:] = sealed(entries.tobytes())


@pytest.mark.spec("DS070", "DS071", "DS073", "DS074")
@pytest.mark.parametrize("order", [list, lambda chunks: chunks[::-1]])
@pytest.mark.parametrize("shard", [0, 1])
async def test_good_shards_in_any_order(shard: int, order: Callable[[list[int]], list[int]]) -> None:
    assert await checked(shard_of(shard, order), shard) is None


async def test_bytes_between_chunks_are_nobodys() -> None:
    data = shard_of(0)
    body, index = data[:-INDEX], np.frombuffer(bytes(data[-INDEX:-4]), "<u8").reshape(-1, 2).copy()
    index[index[:, 1] == SIZE, 0] += 7
    assert await checked(bytearray(b"between" + body + sealed(index.tobytes())), 0) is None


@pytest.mark.spec("DS073")
@pytest.mark.parametrize("sums", [True, False])
async def test_every_bit_counts(sums: bool) -> None:
    good = shard_of(0)
    for at in range(len(good)):
        data = bytearray(good)
        data[at] ^= 1 << at % 8
        error = await checked(data, 0, sums=sums)
        assert error is not None
        assert (error.rule, error.tensor) == ("DS073", "layers.*.w")
        assert error.offset == (at // SIZE * SIZE if at < len(good) - INDEX else len(good) - INDEX)


@pytest.mark.spec("DS070", "DS071")
@pytest.mark.parametrize(
    ("place", "entry", "rule"),
    [
        (3, NONE, None),
        (2, NONE, "DS070"),
        (2, (0, NONE[1]), "DS071"),
        (2, (NONE[0], SIZE), "DS071"),
        (2, (40, SIZE - 1), "DS071"),
        (2, (6 * SIZE - 19, SIZE), "DS071"),
        (2, (1 << 63, SIZE), "DS071"),
        (2, ((1 << 64) - SIZE, SIZE), "DS071"),
        (2, (41, SIZE), "DS071"),
        (2, (20, SIZE), "DS071"),
        (3, (1, 2), "DS071"),
        (3, (0, SIZE), "DS071"),
        (3, (NONE[0], 0), "DS071"),
    ],
)
async def test_entries_of_the_index(place: int, entry: tuple[int, int], rule: str | None) -> None:
    data = shard_of(0)
    entered(data, place, *entry)
    error = await checked(data, 0)
    assert (None if error is None else error.rule) == rule
    if error is not None and "share" not in str(error):
        assert error.offset == len(data) - INDEX + 16 * place


@pytest.mark.spec("DS071")
@pytest.mark.parametrize("length", [0, 3, INDEX - 1])
async def test_too_short_for_its_index(length: int) -> None:
    error = await checked(shard_of(0)[:length], 0)
    assert error is not None
    assert (error.rule, error.offset) == ("DS071", 0)


@pytest.mark.spec("DS074")
async def test_a_chunk_of_another_place_has_the_right_checksum_only() -> None:
    data = shard_of(0)
    data[SIZE : 2 * SIZE] = data[3 * SIZE : 4 * SIZE]
    assert await checked(data, 0, sums=False) is None
    error = await checked(data, 0)
    assert error is not None
    assert (error.rule, error.offset, error.tensor) == ("DS074", SIZE, "layers.*.w")


@pytest.mark.spec("DS074")
async def test_another_shard_in_its_place() -> None:
    whole, _ = GRID.inside(1)
    assert whole.tolist() == [6, 7, 8]
    data = shard_of(1)
    data[: 3 * SIZE] = shard_of(0)[: 3 * SIZE]
    error = await checked(data, 1)
    assert error is not None
    assert (error.rule, error.offset) == ("DS074", 0)
