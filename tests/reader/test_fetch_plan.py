"""Which packs, ranges and bytes a shard fetches, before any of it is fetched."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltastore.format.pack import index_bytes
from deltastore.kernels.rows import chunk_list
from deltastore.reader.fetch_plan import plan_delta
from deltastore.reader.needed import Needed
from deltastore.stores.ranges import coalesced
from tests.doubles.models import bf16, cut_table, small_model
from tests.doubles.stores import WatchedStore, memory_store
from tests.doubles.training import Trainer
from tests.reader.shards import Shard, fetch_by_ranges, newest_delta, parts_of


@given(
    lengths=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), min_size=1, max_size=20),
    gap=st.integers(0, 20),
    most=st.one_of(st.none(), st.integers(1, 4)),
)
def test_ranges_cover_what_they_must(lengths: list[tuple[int, int]], gap: int, most: int | None) -> None:
    ends = np.cumsum([before + length for before, length in lengths])
    starts = ends - np.array([length for _, length in lengths])
    found = coalesced(starts, ends, gap=gap, most=most)
    assert most is None or len(found) <= most
    covered = [
        any(a <= start and end <= b for a, b in found) for start, end in zip(starts, ends, strict=True)
    ]
    assert all(covered)
    assert all(second[0] - first[1] > gap for first, second in itertools.pairwise(found))
    gaps = sorted((starts[1:] - ends[:-1]).tolist(), reverse=True)
    allowed = [one for one in gaps if one > gap][: None if most is None else most - 1]
    assert sum(b - a for a, b in found) == ends[-1] - starts[0] - sum(allowed)


def test_no_ranges_of_nothing() -> None:
    nothing = np.zeros(0, np.int64)
    assert list(coalesced(nothing, nothing, gap=3)) == []


class TestNeeded:
    """The chunks of a shard, by slab."""

    def test_a_part_of_everything(self) -> None:
        model = {"w": bf16(np.zeros((16, 4)))}
        table = cut_table(model, 8, 4)  # eight chunks of two rows, two in each slab from 1 on
        needed = Needed.of(table, parts_of(model, 1, 4))
        assert needed.chunks["chunk"].tolist() == [2, 3]
        assert needed.whole.all()
        assert not needed.everything
        assert [needed.some_of((slab, slab)) for slab in range(5)] == [False, False, True, False, False]
        assert needed.all_of((2, 2))
        assert not needed.all_of((2, 3))
        assert needed.some_of((0, 4))
        asked = chunk_list([0, 0, 0], [3, 4, 2])
        assert needed.entries(asked).tolist() == [1, -1, 0]

    def test_everything(self) -> None:
        model = small_model()
        needed = Needed.of(cut_table(model, 16, 2), parts_of(model, 0, 1))
        assert needed.everything
        assert needed.all_of((0, 2))

    def test_nothing(self) -> None:
        model = {"w": bf16(np.zeros((2, 4)))}
        needed = Needed.of(cut_table(model, 8, 2), parts_of(model, 0, 4))
        assert len(needed) == 0
        assert not needed.some_of((0, 2))
        assert needed.entries(chunk_list([0], [0])).tolist() == [-1]


@pytest.mark.parametrize("pack_bytes", [1, 400, 1 << 20])
@pytest.mark.parametrize("ranges", [True, False])
async def test_a_plan_says_what_a_sync_then_does(
    pack_bytes: int, ranges: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ranges:
        fetch_by_ranges(monkeypatch)
    model = small_model()
    store = WatchedStore(memory_store())
    trainer = await Trainer.create(store, model, table=cut_table(model, 8, 4), pack_bytes=pack_bytes)
    shards = [await Shard.start(store, parts_of(model, rank, 4)) for rank in range(4)]
    for shard in shards:
        await shard.reader.sync()
    await trainer.step(150)
    record = await newest_delta(trainer)
    for rank, shard in enumerate(shards):
        needed = Needed.of(cut_table(model, 8, 4), parts_of(model, rank, 4))
        plan = await plan_delta(store, record, needed)
        synced = await shard.reader.sync()
        assert (plan.requests, plan.nbytes) == (synced.requests, synced.nbytes)
        assert plan.needed_bytes + plan.index_bytes <= plan.nbytes <= plan.total_bytes
        assert all(pack.requests <= 4 for pack in plan.packs)
        if ranges and pack_bytes == 1:
            assert plan.nbytes == plan.needed_bytes + plan.index_bytes


async def test_a_reader_of_everything_fetches_whole_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    fetch_by_ranges(monkeypatch)
    model = small_model()
    trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 8, 4), pack_bytes=1 << 20)
    await trainer.step(50)
    record = await newest_delta(trainer)
    plan = await plan_delta(trainer.store, record, Needed.of(cut_table(model, 8, 4), parts_of(model, 0, 1)))
    (pack,) = plan.packs
    assert (pack.whole, pack.requests, pack.nbytes) == (True, 1, record.packs[0].bytes)
    assert pack.needed_bytes + index_bytes(record.packs[0].rows) == pack.nbytes
    assert plan.index_bytes == index_bytes(record.packs[0].rows)
