"""How changes become packs."""

from __future__ import annotations

from typing import Any

import pytest

from deltastore.errors import InputError
from deltastore.format.records import DeltaRecord
from deltastore.log import Log
from deltastore.validate import validate
from deltastore.writer.opening import open_writer
from tests.doubles.models import bf16, cut_table, small_model
from tests.doubles.stores import contents, memory_store
from tests.doubles.training import Engine, Trainer


class TestPacks:
    """How changes become packs."""

    @pytest.mark.parametrize("slabs", [0, 2])
    async def test_small_packs_and_one_large_one_are_the_same_version(self, slabs: int) -> None:
        histories = []
        for pack_bytes in (1, 300, 1 << 20):
            model = small_model()
            table = cut_table(model, 10, slabs)
            trainer = await Trainer.create(memory_store(), model, table=table, pack_bytes=pack_bytes)
            await trainer.step(60)
            record = await Log(trainer.store).manifest(1)
            assert isinstance(record, DeltaRecord)
            histories.append((len(record.packs), record.digest, sum(pack.rows for pack in record.packs)))
            engine = await Engine.start(trainer.store, model)
            await engine.reader.sync()
            assert engine.wrong(trainer.history) == []
            assert (await validate(trainer.store)).ok
        packs, digests, rows = zip(*histories, strict=True)
        assert packs[0] == rows[0] > packs[1] > packs[2] == 1
        assert len(set(digests)) == len(set(rows)) == 1

    @pytest.mark.spec("DS042")
    async def test_packs_ascend_by_slab_without_overlap(self) -> None:
        model = small_model()
        trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 8, 3), pack_bytes=200)
        await trainer.step(80)
        record = await Log(trainer.store).manifest(1)
        assert isinstance(record, DeltaRecord)
        edges = [slab for pack in record.packs for slab in pack.slabs]
        assert edges == sorted(edges)
        assert edges[0] == 0
        assert edges[-1] == 3

    async def test_progress_counts_every_byte(self, trainer: Trainer) -> None:
        seen: list[int] = []
        trainer.model["norm"][0] = bf16(3)
        trainer.model["layers.1.weight"][0, 0] = bf16(5)
        published = await trainer.writer.publish(progress=seen.append)
        assert len(seen) == 2
        assert sum(seen) == published.nbytes

    @pytest.mark.parametrize("pack_bytes", [0, -1, (1 << 30) + 1, 1.5, True])
    async def test_an_impossible_pack_size_is_refused_before_anything(
        self, trainer: Trainer, pack_bytes: Any
    ) -> None:
        before = await contents(trainer.store)
        with pytest.raises(InputError) as caught:
            await open_writer(trainer.store, trainer.model, pack_bytes=pack_bytes)
        assert caught.value.code == "bad_argument"
        assert await contents(trainer.store) == before
