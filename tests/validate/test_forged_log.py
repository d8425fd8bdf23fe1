"""A log whose hashes are all right because an attacker computed them again: its rules still tell."""

from __future__ import annotations

import pytest

from deltastore.format.records import record_key
from deltastore.validate import validate
from tests.doubles.forging import append_foreign, fields_of, forge, put_record
from tests.doubles.models import tiny_model
from tests.doubles.stores import contents, memory_store
from tests.doubles.training import Trainer

from .asking import first


class TestLog:
    """Rules of the log."""

    @pytest.mark.spec("DS050")
    async def test_a_second_birth(self, trainer: Trainer) -> None:
        birth = await fields_of(trainer.store, 0)
        last = await fields_of(trainer.store, 7)
        await put_record(
            trainer.store, 8, {**birth, "slot": 8, "parent": last["sha256"], "epoch": last["epoch"]}
        )
        assert await first(trainer) == ("bad_chain", record_key(8))

    @pytest.mark.spec("DS053")
    @pytest.mark.parametrize(
        ("slot", "epoch"), [(0, 1), (1, 0), (1, 2), (3, 3), (3, 1), (2, 0), (5, 1), (7, 3)]
    )
    async def test_epochs_out_of_order(self, trainer: Trainer, slot: int, epoch: int) -> None:
        await forge(trainer.store, slot, epoch=epoch)
        assert await first(trainer) == ("bad_chain", record_key(slot))

    @pytest.mark.spec("DS053")
    async def test_a_skipped_record_of_another_epoch(self, trainer: Trainer) -> None:
        slot = await append_foreign(trainer.store)
        assert (await validate(trainer.store)).ok
        await forge(trainer.store, slot, epoch=1)
        assert await first(trainer) == ("bad_chain", record_key(slot))

    @pytest.mark.spec("DS054")
    @pytest.mark.parametrize("version", [1, 2, 3])
    async def test_versions_that_do_not_ascend(self, trainer: Trainer, version: int) -> None:
        await forge(trainer.store, 7, version=version, base=0)
        assert await first(trainer) == ("bad_chain", record_key(7))

    @pytest.mark.spec("DS054")
    @pytest.mark.parametrize("version", [2, 3, 4])
    async def test_versions_that_do_not_ascend_after_a_rollback(self, trainer: Trainer, version: int) -> None:
        trainer.load(1)
        await trainer.reopen()
        published = await trainer.step()
        assert (published.version, published.slot) == (5, 9)
        await forge(trainer.store, 9, version=version)
        assert await first(trainer) == ("bad_chain", record_key(9))

    @pytest.mark.spec("DS054")
    @pytest.mark.parametrize("version", [0, 3, 4])
    async def test_anchors_that_do_not_ascend(self, trainer: Trainer, version: int) -> None:
        published = await trainer.step(anchor=True)
        await forge(trainer.store, published.slot, version=version)
        assert await first(trainer) == ("bad_chain", record_key(published.slot))

    @pytest.mark.spec("DS055", "DS060")
    @pytest.mark.parametrize("base", [0, 1, 2])
    async def test_a_base_that_was_not_due(self, trainer: Trainer, base: int) -> None:
        await forge(trainer.store, 7, base=base)
        assert await first(trainer) == ("bad_chain", record_key(7))

    @pytest.mark.spec("DS060")
    @pytest.mark.parametrize("base", [4, 5, 2**53 - 1])
    async def test_a_base_that_is_not_below_the_version(self, trainer: Trainer, base: int) -> None:
        await forge(trainer.store, 7, base=base)
        assert await first(trainer) == ("bad_json", record_key(7))

    @pytest.mark.spec("DS055")
    @pytest.mark.parametrize("resumes", [None, 1, 7])
    async def test_an_epoch_that_resumes_something_else(self, trainer: Trainer, resumes: int | None) -> None:
        await forge(trainer.store, 3, resumes=resumes)
        where = record_key(4 if resumes is None else 3)
        assert await first(trainer) == ("bad_chain", where)

    @pytest.mark.spec("DS055")
    async def test_a_version_before_any_epoch(self) -> None:
        trainer = await Trainer.create(memory_store(), tiny_model())
        objects = await contents(trainer.store)
        bare = memory_store()
        for key, data in objects.items():
            if not key.startswith("log/"):
                await bare.put(key, data)
        birth = await fields_of(trainer.store, 0)
        anchor = await fields_of(trainer.store, 2)
        await put_record(bare, 0, birth)
        await put_record(bare, 1, {**anchor, "slot": 1, "parent": birth["sha256"], "epoch": 0})
        report = await validate(bare)
        assert [(problem.code, problem.where) for problem in report.problems] == [
            ("bad_chain", record_key(1))
        ]

    @pytest.mark.spec("DS060")
    async def test_a_delta_over_a_change_of_table(self, trainer: Trainer) -> None:
        await forge(trainer.store, 5, table="f" * 64)
        assert await first(trainer) == ("bad_chain", record_key(5))

    async def test_problems_name_an_object_and_say_what_is_wrong(self, trainer: Trainer) -> None:
        await forge(trainer.store, 3, resumes=9)
        report = await validate(trainer.store)
        assert report.problems[0].where == record_key(3)
        assert "9" in report.problems[0].message
