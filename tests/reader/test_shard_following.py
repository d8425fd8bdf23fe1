"""A shard follows a stream to the bit, whatever its layout, and fetches only what it needs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltastore.stores.base import Store
from deltastore.stores.open import open_store
from tests.doubles.models import copy_of, cut_table, small_model
from tests.doubles.stores import WatchedStore, memory_store
from tests.doubles.training import Trainer
from tests.reader.shards import AnyLayout, Shard, fetch_by_ranges, newest_delta, parts_of


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32), limit=st.sampled_from([3, 8, 24, 100]), slabs=st.integers(0, 4))
@pytest.mark.spec("DS094", "DS095")
def test_any_shard_of_any_stream_holds_exactly_its_slices(seed: int, limit: int, slabs: int) -> None:
    asyncio.run(_follow(seed, limit, slabs))


async def _follow(seed: int, limit: int, slabs: int) -> None:
    random = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        fetch_by_ranges(patch, gap=int(random.integers(0, 100)))
        model = small_model()
        table = cut_table(model, limit, slabs)
        trainer = await Trainer.create(
            memory_store(), model, table=table, pack_bytes=int(random.choice([1, 300, 1 << 20]))
        )
        made = AnyLayout(model, random)
        layout = made.done()
        shard = await Shard.start(trainer.store, layout, made.memory(layout))
        for _ in range(4):
            await trainer.steps(int(random.integers(0, 3)), int(random.integers(1, 40)))
            await shard.reader.sync()
            assert shard.reader.version == trainer.writer.version
            assert shard.wrong(trainer.history) == []
            assert await shard.reader.verify()


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return memory_store() if request.param == "memory" else open_store(tmp_path / "stream")


@pytest.mark.usefixtures("by_ranges")
@pytest.mark.parametrize("ranks", [1, 2, 4])
async def test_all_ranks_together_are_the_model(place: Store, ranks: int) -> None:
    model = small_model()
    trainer = await Trainer.create(place, model, table=cut_table(model, 24, 4), pack_bytes=1 << 20)
    shards = [await Shard.start(place, parts_of(model, rank, ranks)) for rank in range(ranks)]
    for count in (0, 3, 60, 0, 200):
        if count:
            await trainer.step(count)
        for shard in shards:
            await shard.reader.sync()
            assert shard.wrong(trainer.history) == []
    assert all([await shard.reader.verify() for shard in shards])
    for name in ("model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight"):
        together = np.concatenate([shard.params[name].view(np.uint16) for shard in shards])
        assert (together == model[name].view(np.uint16)).all()


class TestWhatIsFetched:
    """Requests and bytes."""

    async def test_what_only_others_hold_costs_nothing_but_the_poll(self) -> None:
        model = small_model()
        store = WatchedStore(memory_store())
        trainer = await Trainer.create(store, model, table=cut_table(model, 24, 4), pack_bytes=1)
        shard = await Shard.start(store, parts_of(model, 0, 4))
        await shard.reader.sync()
        model["model.embed_tokens.weight"].view(np.uint16)[-1] ^= 1
        await trainer.publish()
        store.forget()
        synced = await shard.reader.sync()
        assert (synced.version, synced.requests, synced.nbytes, synced.changed) == (1, 0, 0, 0)
        assert [key.split("/")[0] for key in store.keys("get", "get_range")] == ["log", "log"]
        assert shard.wrong(trainer.history) == []

    async def test_a_version_that_changes_nothing(self) -> None:
        model = small_model()
        trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 24, 4))
        shard = await Shard.start(trainer.store, parts_of(model, 1, 2))
        await shard.reader.sync()
        await trainer.publish()
        synced = await shard.reader.sync()
        assert (synced.version, synced.requests, synced.changed) == (1, 0, 0)

    @pytest.mark.usefixtures("by_ranges")
    async def test_requests_and_bytes_are_those_of_the_store(self) -> None:
        model = small_model()
        store = WatchedStore(memory_store())
        trainer = await Trainer.create(store, model, table=cut_table(model, 24, 4), pack_bytes=1 << 20)
        shard = await Shard.start(store, parts_of(model, 1, 4))
        store.forget()
        synced = await shard.reader.sync()
        logs = len([key for key in store.keys("get", "get_range") if key.startswith("log/")])
        assert synced.requests == len(store.keys("get", "get_range")) - logs
        await trainer.step(200)
        store.forget()
        synced = await shard.reader.sync()
        fetched = [key for key in store.keys("get", "get_range") if key.startswith("packs/")]
        assert synced.requests == len(fetched)
        assert 2 <= synced.requests <= 4
        assert synced.nbytes < sum(pack.bytes for pack in (await newest_delta(trainer)).packs)

    @pytest.mark.usefixtures("by_ranges")
    async def test_every_rank_of_a_pack_of_one_slab_each_fetches_its_share_only(self) -> None:
        model = {"w": small_model()["model.embed_tokens.weight"].reshape(12, 8)}
        store = WatchedStore(memory_store())
        trainer = await Trainer.create(store, model, table=cut_table(model, 8, 4), pack_bytes=1 << 20)
        shards = [await Shard.start(store, parts_of(model, rank, 4)) for rank in range(4)]
        for shard in shards:
            await shard.reader.sync()
        model["w"].view(np.uint16)[...] += 1
        await trainer.publish()
        (pack,) = (await newest_delta(trainer)).packs
        front = 64 + 44 * pack.rows
        shares = [(await shard.reader.sync()).nbytes - front for shard in shards]
        assert sum(shares) == pack.bytes - front


async def test_a_model_that_moved_on_is_loaded_from_a_later_anchor() -> None:
    model = small_model()
    trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 24, 4))
    shard = await Shard.start(trainer.store, parts_of(model, 1, 3))
    await shard.reader.sync()
    await trainer.step(20)
    await trainer.step(20, anchor=True)
    await trainer.step(20)
    synced = await shard.reader.sync()
    assert (synced.previous, synced.version) == (0, 3)
    assert shard.wrong(trainer.history) == []
    assert await shard.reader.verify()


async def test_weights_that_happen_to_be_right_are_loaded_all_the_same() -> None:
    model = small_model()
    trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 24, 4))
    shard = await Shard.start(trainer.store, parts_of(model, 0, 1), copy_of(model))
    synced = await shard.reader.sync()
    assert synced.changed > 0
    assert shard.wrong(trainer.history) == []
