"""Version numbers and the user's notes: what does not fit is refused, and nothing is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deltastore.errors import ConflictError, InputError
from deltastore.format.limits import MAX_INTEGER
from deltastore.log import Log
from deltastore.validate import validate
from deltastore.writer.opening import open_writer
from tests.doubles.models import differing
from tests.doubles.stores import contents
from tests.doubles.training import Engine, Trainer


class TestNumbers:
    """Version numbers."""

    @pytest.mark.spec("DS054")
    async def test_gaps_are_allowed(self, trainer: Trainer) -> None:
        assert (await trainer.step(version=5)).version == 5
        assert (await trainer.step()).version == 6
        assert (await trainer.step(version=1000)).version == 1000
        engine = await Engine.start(trainer.store, trainer.model)
        await engine.reader.sync()
        assert engine.wrong(trainer.history) == []
        assert (await validate(trainer.store)).ok

    @pytest.mark.spec("DS054")
    @pytest.mark.parametrize("anchor", [False, True])
    async def test_not_above_the_tip_is_refused_and_loses_nothing(
        self, trainer: Trainer, anchor: bool
    ) -> None:
        await trainer.step(version=4)
        before = await contents(trainer.store)
        for version in (4, 3, 0):
            with pytest.raises(ConflictError, match="take 5 or more") as caught:
                await trainer.step(version=version, anchor=anchor)
            assert caught.value.code == "version_taken"
        assert await contents(trainer.store) == before
        published = await trainer.publish()
        assert (published.version, published.kind) == (5, "delta")
        engine = await Engine.start(trainer.store, trainer.model)
        await engine.reader.sync()
        assert engine.wrong(trainer.history) == []

    @pytest.mark.parametrize("version", [-1, 2**53, 1.0, "7", True])
    async def test_what_is_no_version_is_refused(self, trainer: Trainer, version: Any) -> None:
        with pytest.raises(InputError) as caught:
            await trainer.publish(version=version)
        assert caught.value.code == "bad_argument"

    async def test_the_last_number_of_all(self, trainer: Trainer) -> None:
        await trainer.step(version=MAX_INTEGER)
        with pytest.raises((InputError, ConflictError)):
            await trainer.step()
        engine = await Engine.start(trainer.store, trainer.model)
        await engine.reader.sync()
        assert engine.reader.version == MAX_INTEGER


class TestMetadata:
    """The user's notes."""

    async def test_notes_come_back_as_given(self, trainer: Trainer) -> None:
        notes = {
            "lr": "1e-6",
            "tokens": 10**15,
            "eval": True,
            "none": None,
            "ünïcode"[:0] + "name": 'é\n"\\\x01',
        }
        await trainer.step(step=17, metadata=notes)
        record = await Log(trainer.store).manifest(1)
        assert record.metadata == {**notes, "step": 17}
        assert (await validate(trainer.store)).ok

    @pytest.mark.parametrize(
        "notes",
        [
            {"a b": 1},
            {"": 1},
            {"x" * 65: 1},
            {"x": "y" * 1025},
            {"x": 0.5},
            {"x": 2**53},
            {"x": [1]},
            {"x": b"1"},
            {"x": np.int64(3)},
            {"x": "\ud800"},
            {f"k{number}": 1 for number in range(65)},
            {3: 1},
        ],
    )
    @pytest.mark.parametrize("anchor", [False, True])
    async def test_notes_that_do_not_fit_are_refused_and_lose_nothing(
        self, trainer: Trainer, notes: Any, anchor: bool
    ) -> None:
        before = await contents(trainer.store)
        with pytest.raises(InputError) as caught:
            await trainer.step(metadata=notes, anchor=anchor)
        assert caught.value.code == "bad_argument"
        assert await contents(trainer.store) == before
        assert (await trainer.publish()).kind == "delta"
        assert differing(trainer.history[1], trainer.model) == []

    @pytest.mark.parametrize("label", ["x" * 201, "\ud800", None, 3])
    async def test_a_label_that_does_not_fit_fences_nobody(self, trainer: Trainer, label: Any) -> None:
        before = await contents(trainer.store)
        with pytest.raises(InputError) as caught:
            await open_writer(trainer.store, trainer.model, label=label)
        assert caught.value.code == "bad_argument"
        assert await contents(trainer.store) == before
        await trainer.step()
