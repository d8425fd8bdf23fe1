"""Which chunks a shard holds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltastore.anchors.sharding import SHARD_BYTES, SHARD_CHUNKS, ShardGrid, array_path, plan_shards
from deltastore.format.table import Array, SlabRule
from deltastore.kernels.grid import ChunkGrid

AXES = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=4)


def array_of(extent: tuple[int, ...], chunk: tuple[int, ...], dtype: str = "BF16") -> Array:
    members = (((0, extent[0]),),)
    rule = SlabRule(by="common", of=0, count=0)
    return Array(pattern="w.*", dtype=dtype, shape=extent[1:], members=members, chunk=chunk, slab=rule)


@given(axes=AXES)
def test_every_chunk_is_at_one_place_of_one_shard(axes: list[tuple[int, int, int]]) -> None:
    extent, chunk, per_shard = zip(*axes, strict=True)
    grid = ShardGrid(ChunkGrid(extent, chunk), per_shard)
    places = set()
    for shard in range(len(grid.shards)):
        box = grid.box(shard)
        elements = 0
        chunks, there = grid.inside(shard)
        for member, place in zip(chunks.tolist(), there.tolist(), strict=True):
            part = grid.chunks.box(member)
            assert grid.holder(member) == (shard, place)
            assert all(at >= low for at, low in zip(part.start, box.start, strict=True))
            ends = zip(part.start, part.size, box.start, box.size, strict=True)
            assert all(at + size <= low + whole for at, size, low, whole in ends)
            elements += part.elements
            places.add(grid.holder(member))
        assert elements == box.elements
    assert len(places) == len(grid.chunks)
    assert all(place < grid.places for _, place in places)


@given(axes=AXES, limit=st.integers(1, 2000))
def test_planned_shards_are_filled_one_after_another(axes: list[tuple[int, int, int]], limit: int) -> None:
    extent, chunk, _ = zip(*axes, strict=True)
    array = array_of((max(extent[0], 1), *extent[1:]), chunk)
    grid = plan_shards(array, limit)
    order = [member for shard in range(len(grid.shards)) for member in grid.inside(shard)[0].tolist()]
    assert order == list(range(len(array.grid)))
    chunk_bytes = math.prod(chunk) * 2
    assert grid.places == 1 or grid.places * chunk_bytes <= limit


def test_shards_of_a_large_array_are_near_the_target() -> None:
    grid = plan_shards(array_of((48, 3072, 1024), (1, 1024, 1024)))
    nbytes = math.prod(grid.shape) * 2
    assert SHARD_BYTES / 2 <= nbytes <= SHARD_BYTES
    assert grid.key(len(grid.shards) - 1) == f"c/{grid.shards.counts[0] - 1}/0/0"


def test_tiny_chunks_do_not_make_a_huge_index() -> None:
    grid = plan_shards(array_of((100, 1000), (1, 1)))
    assert grid.places <= SHARD_CHUNKS


@pytest.mark.parametrize(("number", "path"), [(0, "array-00000"), (123456, "array-123456")])
def test_paths_of_arrays(number: int, path: str) -> None:
    assert array_path(number) == path
