"""Several writers of one version: they may share chunks, but no element."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deltastore.errors import CorruptError
from deltastore.format.records import record_key
from deltastore.format.table import TensorTable
from deltastore.layout.weights import chunks_of
from deltastore.replay import read_table
from deltastore.stream import AsyncStream
from deltastore.validate import Report, validate
from deltastore.validate.chain import walk_chain
from deltastore.validate.live import compare_live, open_live
from deltastore.validate.replaying import check_by_replay
from deltastore.validate.report import Findings
from tests.doubles.models import Bits, cut_table, tiny_model
from tests.doubles.stores import memory_store
from tests.doubles.training import Engine, Trainer
from tests.doubles.writers import by_writers

from .asking import delta
from .live_dumps import dump


class TestSeveralWriters:
    """Writers that share chunks are fine while they do not share elements."""

    async def rewritten(self, owners: list[Any], slabs: int = 0) -> tuple[Trainer, TensorTable, Bits]:
        model = tiny_model()
        trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 16, slabs))
        await trainer.step(50)
        await trainer.step(10)
        record = await delta(trainer, 1)
        table = await read_table(trainer.store, record.table)
        old, new = trainer.history[0], trainer.history[1]
        await by_writers(trainer.store, table, record, old, new, owners)
        return trainer, table, new

    async def sound(self, trainer: Trainer) -> Report:
        report = await validate(trainer.store)
        assert report.problems == ()
        engine = await Engine.start(trainer.store, trainer.model)
        for version in (0, 1, 2):
            await engine.reader.sync(version)
            assert engine.wrong(trainer.history) == []
        return report

    @pytest.mark.spec("DS045")
    @pytest.mark.parametrize("slabs", [0, 2])
    async def test_disjoint_elements_of_the_same_chunks(self, slabs: int) -> None:
        trainer, *_ = await self.rewritten([lambda at: at % 2 == 0, lambda at: at % 2 == 1], slabs)
        assert (await self.sound(trainer)).packs == 2 + len((await delta(trainer, 2)).packs)

    @pytest.mark.spec("DS045")
    async def test_three_writers(self) -> None:
        trainer, *_ = await self.rewritten(
            [lambda at: at % 3 == 0, lambda at: at % 3 == 1, lambda at: at % 3 == 2]
        )
        await self.sound(trainer)

    @pytest.mark.spec("DS045")
    async def test_an_element_in_two_packs(self) -> None:
        trainer, *_ = await self.rewritten([lambda at: at % 2 == 0, lambda at: (at % 2 == 1) | (at == at[0])])
        report = await validate(trainer.store)
        assert report.problems[0].code == "bad_patch"
        assert report.problems[0].where == record_key((await delta(trainer, 1)).slot)
        engine = await Engine.start(trainer.store, trainer.model)
        with pytest.raises(Exception, match="two writers"):
            await engine.reader.sync()
        assert engine.reader.version == 0
        assert engine.wrong(trainer.history) == []

    @pytest.mark.spec("DS045")
    async def test_no_replay_takes_an_element_twice(self, tmp_path: Path) -> None:
        trainer, *_ = await self.rewritten([lambda at: at % 2 == 0, lambda at: (at % 2 == 1) | (at == at[0])])
        where = record_key((await delta(trainer, 1)).slot)
        findings = Findings()
        chain = await walk_chain(trainer.store, findings)
        await check_by_replay(trainer.store, chain, list(chain.committed), findings)
        found = [(one.check, one.code, one.where, one.version) for one in findings.problems]
        assert found == [("DS062", "bad_digest", where, 1), ("DS045", "bad_patch", where, 1)]
        dumped = dump(tmp_path / "w.safetensors", trainer.model)
        with pytest.raises(CorruptError) as caught, open_live(dumped) as live:
            await compare_live(trainer.store, live)
        assert (caught.value.rule, caught.value.where) == ("DS045", where)
        weights = await (await AsyncStream.open(trainer.store)).weights(1)
        with pytest.raises(CorruptError) as caught:
            async for _ in chunks_of(weights):
                pass
        assert caught.value.rule == "DS045"

    async def test_an_element_that_nobody_patched(self) -> None:
        trainer, *_ = await self.rewritten(
            [lambda at: at % 2 == 0, lambda at: (at % 2 == 1) & (at != at[-1])]
        )
        report = await validate(trainer.store)
        assert report.problems[0].code in ("bad_digest", "bad_json")
        engine = await Engine.start(trainer.store, trainer.model)
        with pytest.raises(Exception, match="digest"):
            await engine.reader.sync()
        assert engine.wrong(trainer.history) == []
