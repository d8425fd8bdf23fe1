"""What a new writer takes as its first base: the newest version whose weights it has, or none."""

from __future__ import annotations

import pytest

from deltastore.errors import InputError, NotFoundError
from deltastore.format.records import EpochRecord
from deltastore.log import Log
from deltastore.stores.base import Store
from deltastore.validate import validate
from deltastore.writer.opening import open_writer
from tests.doubles.models import bf16, bits, copy_of, differing, tiny_model
from tests.doubles.stores import WatchedStore, contents, memory_store
from tests.doubles.training import Engine, Trainer


async def epochs(store: Store) -> list[EpochRecord]:
    return [record async for record in Log(store).forwards() if isinstance(record, EpochRecord)]


class TestResuming:
    """What a new writer takes as its first base."""

    @pytest.mark.spec("DS055", "DS081")
    async def test_the_weights_of_the_tip_are_recognised(self, trainer: Trainer) -> None:
        await trainer.steps(3)
        await trainer.reopen(label="again")
        assert (trainer.writer.version, trainer.writer.epoch) == (3, 3)
        record = (await epochs(trainer.store))[-1]
        assert (record.resumes, record.writer, record.epoch) == (3, "again", 3)
        assert (await trainer.step()).kind == "delta"

    @pytest.mark.spec("DS055")
    async def test_unknown_weights_begin_with_an_anchor(self, trainer: Trainer) -> None:
        await trainer.steps(2)
        trainer.model["norm"][0] = bf16(0x1111)
        await trainer.reopen()
        assert trainer.writer.version is None
        assert (await epochs(trainer.store))[-1].resumes is None
        published = await trainer.publish()
        assert (published.version, published.kind) == (3, "anchor")
        assert (await trainer.step()).kind == "delta"
        engine = await Engine.start(trainer.store, trainer.model)
        for version in (1, 4, 3, 2):
            await engine.reader.sync(version)
            assert engine.wrong(trainer.history) == []
        assert (await validate(trainer.store)).ok

    @pytest.mark.spec("DS055", "DS060")
    async def test_old_weights_roll_back(self, trainer: Trainer) -> None:
        await trainer.steps(9)
        past = await Engine.start(trainer.store, trainer.model)
        await past.reader.sync()
        before = await Engine.start(trainer.store, trainer.model)
        await before.reader.sync(4)
        trainer.load(4)
        await trainer.reopen()
        assert trainer.writer.version == 4
        published = await trainer.step()
        assert (published.version, published.kind) == (10, "delta")
        await trainer.step()
        for engine in (past, before, await Engine.start(trainer.store, trainer.model)):
            synced = await engine.reader.sync()
            assert synced.version == 11
            assert engine.wrong(trainer.history) == []
        for version in range(12):
            await past.reader.sync(version)
            assert past.wrong(trainer.history) == []
        assert (await validate(trainer.store)).ok

    async def test_rollbacks_of_rollbacks(self, trainer: Trainer) -> None:
        engine = await Engine.start(trainer.store, trainer.model)
        for back in (0, 2, 1, 5, 4, 0):
            await trainer.steps(2)
            await engine.reader.sync()
            assert engine.wrong(trainer.history) == []
            trainer.load(back)
            await trainer.reopen()
        await trainer.step()
        for version in trainer.history:
            await engine.reader.sync(version)
            assert engine.wrong(trainer.history) == []
        assert (await validate(trainer.store)).ok

    async def test_of_equal_versions_the_newest_is_resumed(self, trainer: Trainer) -> None:
        await trainer.step()
        await trainer.publish()
        await trainer.publish()
        await trainer.reopen()
        assert trainer.writer.version == 3

    async def test_a_writer_may_insist(self, trainer: Trainer) -> None:
        await trainer.step()
        await trainer.publish()
        await trainer.reopen(resumes=1)
        assert trainer.writer.version == 1
        await trainer.step()
        engine = await Engine.start(trainer.store, trainer.model)
        await engine.reader.sync()
        assert engine.wrong(trainer.history) == []
        assert (await validate(trainer.store)).ok

    @pytest.mark.spec("DS081")
    async def test_insisting_with_wrong_weights_is_refused_and_fences_nobody(self, trainer: Trainer) -> None:
        await trainer.steps(2)
        before = await contents(trainer.store)
        other = copy_of(trainer.model)
        for resumes in (0, 1):
            with pytest.raises(InputError, match=f"not the weights of version {resumes}") as caught:
                await open_writer(trainer.store, other, resumes=resumes)
            assert caught.value.code == "bad_argument"
        with pytest.raises(NotFoundError) as missing:
            await open_writer(trainer.store, other, resumes=3)
        assert missing.value.code == "no_version"
        assert await contents(trainer.store) == before
        await trainer.step()

    async def test_a_model_that_does_not_fit_fences_nobody(self, trainer: Trainer) -> None:
        before = await contents(trainer.store)
        model = copy_of(trainer.model)
        model.pop("norm")
        with pytest.raises(InputError) as caught:
            await open_writer(trainer.store, model)
        assert caught.value.code == "missing_tensor"
        assert await contents(trainer.store) == before

    @pytest.mark.spec("DS055")
    async def test_a_newer_version_while_opening_is_a_rollback_not_a_loss(self) -> None:
        store = WatchedStore(memory_store())
        trainer = await Trainer.create(store, tiny_model())
        model = copy_of(trainer.model)
        done = False

        class Late(WatchedStore):
            async def put_if_absent(self, key: str, data: object) -> bool:
                nonlocal done
                if not done:
                    done = True
                    await trainer.step()
                return await super().put_if_absent(key, data)  # type: ignore[arg-type]

        late = await open_writer(Late(store), model)
        assert late.version == 0
        model["norm"][2] = bf16(0x0777)
        published = await late.publish()
        assert published.version == 2
        engine = await Engine.start(store, model)
        await engine.reader.sync()
        assert differing(engine.tensors, bits(model)) == []
        await engine.reader.sync(1)
        assert engine.wrong(trainer.history) == []
        assert (await validate(store)).ok

    async def test_opening_costs_few_requests_when_the_weights_are_the_tips(self, trainer: Trainer) -> None:
        await trainer.steps(30)
        assert isinstance(trainer.store, WatchedStore)
        trainer.store.forget()
        await trainer.reopen()
        # Two gallops, the tip, a table, an epoch: no walk back over the log.
        assert len(trainer.store.calls) < 40
