"""Packs end where slabs do, once they are worth a request of their own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from deltastore.format.limits import PACKS_PER_VERSION
from deltastore.format.records import DeltaRecord, PackRef
from deltastore.layout.live import LiveWeights
from deltastore.log import Log
from deltastore.stores.base import Store
from deltastore.validate import validate
from deltastore.writer import packing
from deltastore.writer.packing import PACK_SPLIT_BYTES, PACK_TARGET_BYTES, Packing
from deltastore.writer.whole import create_stream
from tests.doubles.models import Tensors, bf16, bits, change, cut_table
from tests.doubles.stores import memory_store
from tests.doubles.training import Engine, Trainer
from tests.writers.teams import Team


def layered() -> Tensors:
    """Two layers of a matrix with twelve rows of chunks, and a norm that is common."""
    random = np.random.default_rng(5)
    model: Tensors = {
        f"layers.{layer}.weight": bf16(random.integers(0, 1 << 16, (48, 16))) for layer in range(2)
    }
    model["norm"] = bf16(random.integers(0, 1 << 16, 32))
    return model


async def packs_of(store: Store, version: int = 1) -> tuple[PackRef, ...]:
    record = await Log(store).manifest(version)
    assert isinstance(record, DeltaRecord)
    return record.packs


async def published(slabs: int, pack_bytes: int, *, changed: int = 400) -> tuple[PackRef, ...]:
    """The packs of a step, which an engine and the validator have found sound."""
    model = layered()
    table = cut_table(model, 64, slabs)
    trainer = await Trainer.create(memory_store(), model, table=table, pack_bytes=pack_bytes)
    await trainer.step(changed)
    engine = await Engine.start(trainer.store, model)
    await engine.reader.sync()
    assert engine.wrong(trainer.history) == []
    assert (await validate(trainer.store)).ok
    return await packs_of(trainer.store)


async def test_slabs_that_are_worth_it_have_packs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "PACK_SPLIT_BYTES", 100)
    packs = await published(3, 1 << 20)
    assert [pack.slabs for pack in packs] == [(0, 0), (1, 1), (2, 2), (3, 3)]


async def test_a_slab_may_still_be_many_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "PACK_SPLIT_BYTES", 100)
    packs = await published(3, 500)
    assert len(packs) > 5
    assert all(first == last for first, last in (pack.slabs for pack in packs))
    assert {pack.slabs[0] for pack in packs} == {0, 1, 2, 3}


@pytest.mark.parametrize("split", [400, 900, 1500])
async def test_small_slabs_share_packs_until_they_are_large_enough(
    monkeypatch: pytest.MonkeyPatch, split: int
) -> None:
    monkeypatch.setattr(packing, "PACK_SPLIT_BYTES", split)
    packs = await published(12, 1 << 20)
    assert 1 < len(packs) < 13
    assert any(first != last for first, last in (pack.slabs for pack in packs))
    assert all(pack.bytes >= split for pack in packs[:-1])
    for before, after in itertools.pairwise(packs):
        assert before.slabs[1] < after.slabs[0]


async def test_small_deltas_stay_one_pack() -> None:
    (pack,) = await published(12, PACK_TARGET_BYTES)
    assert pack.slabs == (0, 12)


@pytest.mark.parametrize("pack_bytes", [1, 300, 1 << 20])
async def test_without_slabs_nothing_is_split(monkeypatch: pytest.MonkeyPatch, pack_bytes: int) -> None:
    usual = await published(0, pack_bytes)
    monkeypatch.setattr(packing, "PACK_SPLIT_BYTES", 1)
    split = await published(0, pack_bytes)
    assert [(pack.bytes, pack.rows, pack.count, pack.slabs) for pack in split] == [
        (pack.bytes, pack.rows, pack.count, pack.slabs) for pack in usual
    ]


async def test_packs_of_several_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "PACK_SPLIT_BYTES", 200)
    model, store = layered(), memory_store()
    await create_stream(store, LiveWeights(cut_table(model, 64, 3), model))
    team = await Team.opened(store, model, 3, pack_bytes=1 << 20)
    change(model, np.random.default_rng(9), 500)
    await team.agreed()
    packs = await packs_of(store)
    assert {pack.slabs for pack in packs} >= {(2, 2), (3, 3)}
    assert len(packs) > 4
    engine = await Engine.start(store, model)
    await engine.reader.sync()
    assert engine.wrong({1: bits(model)}) == []
    assert (await validate(store)).ok


class TestWhenPacksEnd:
    """The numbers alone."""

    def test_at_first_after_about_a_mebibyte(self) -> None:
        assert Packing().split(0) == PACK_SPLIT_BYTES == 1 << 20

    def test_never_later_than_packs_are_full(self) -> None:
        assert Packing(target_bytes=300).split(0) == 300

    @pytest.mark.parametrize(("writers", "most"), [(1, 2048), (8, 256), (100, 21), (65536, 1)])
    def test_slabs_use_up_only_a_quarter_of_all_packs(self, writers: int, most: int) -> None:
        packs = Packing(writers=writers)
        splits = [packs.split(count) for count in range(PACKS_PER_VERSION)]
        assert splits[:most] == [PACK_SPLIT_BYTES] * most
        assert min(splits[most:]) >= packs.target(PACKS_PER_VERSION - 1)
