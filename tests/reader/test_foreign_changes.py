"""Weights that something else changed or moved: found where the delta writes, refused, and repaired."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import torch

from deltastore.errors import CorruptError, InputError
from deltastore.format.records import DeltaRecord
from deltastore.log import Log
from deltastore.reader.following import AsyncReader
from deltastore.reader.opening import open_reader
from tests.doubles.forging import forge
from tests.doubles.models import bits, blank, differing
from tests.doubles.stores import WatchedStore
from tests.doubles.training import Engine, Trainer

from .tearing import ready


class TestForeignChanges:
    """Something else wrote into the live weights."""

    @pytest.mark.spec("DS091", "DS092")
    async def test_a_change_where_the_delta_writes_is_refused_then_repaired(
        self, trainer: Trainer, store: WatchedStore
    ) -> None:
        engine = await ready(trainer)
        engine.tensors["model.embed_tokens.weight"].view(np.uint16)[...] ^= 0x4400
        before = bits(engine.tensors)
        with pytest.raises(CorruptError) as caught:
            await engine.reader.sync()
        assert caught.value.code in ("bad_digest", "bad_patch")
        assert "not" in str(caught.value)
        assert differing(engine.tensors, before) == [], "nothing was written"
        assert engine.state() == (None, True)
        store.forget()
        await engine.reader.sync()
        assert engine.state() == (2, False)
        assert engine.wrong(trainer.history) == []
        assert [key for key in store.keys("get") if key.startswith("anchors/")] != []

    async def test_verify_finds_any_change_and_sync_repairs(self, trainer: Trainer) -> None:
        engine = await ready(trainer)
        assert await engine.reader.verify()
        engine.tensors["model.norm.weight"].view(np.uint16)[-1] ^= 0x8000
        assert not await engine.reader.verify()
        assert engine.state() == (None, True)
        await engine.reader.sync()
        assert engine.state() == (2, False)
        assert engine.wrong(trainer.history) == []
        assert await engine.reader.verify()

    async def test_verify_before_the_first_sync_is_no(self, trainer: Trainer) -> None:
        engine = await Engine.start(trainer.store, trainer.model)
        assert not await engine.reader.verify()
        assert engine.state() == (None, False)

    @pytest.mark.spec("DS036", "DS091")
    @pytest.mark.parametrize("flip", [0x0001, 0x0002, 0x0003, 0x7FFF, 0x8000, 0xFFFF])
    async def test_a_change_of_a_written_element_is_found(self, trainer: Trainer, flip: int) -> None:
        engine = await Engine.start(trainer.store, trainer.model)
        await engine.reader.sync()
        trainer.model["model.norm.weight"].view(np.uint16)[4:7] += 1
        await trainer.publish()
        engine.tensors["model.norm.weight"].view(np.uint16)[5] ^= flip
        before = bits(engine.tensors)
        if differing(engine.tensors, trainer.history[2]) == []:
            raise AssertionError("the flip is the change itself")
        with pytest.raises(CorruptError):
            await engine.reader.sync()
        assert differing(engine.tensors, before) == []
        assert engine.reader.torn
        await engine.reader.sync()
        assert engine.wrong(trainer.history) == []

    @pytest.mark.spec("DS036", "DS091")
    async def test_an_offset_that_is_never_written_is_refused_as_such(self, trainer: Trainer) -> None:
        """A step of +1 over an element that stands 3 too high would be -2, which two bits do not carry."""
        engine = await Engine.start(trainer.store, trainer.model)
        await engine.reader.sync()
        trainer.model["model.norm.weight"].view(np.uint16)[:] = 0x3F80
        await trainer.publish()
        await engine.reader.sync()
        trainer.model["model.norm.weight"].view(np.uint16)[9] += 1
        await trainer.publish()
        engine.tensors["model.norm.weight"].view(np.uint16)[9] += 3
        before = bits(engine.tensors)
        with pytest.raises(CorruptError) as caught:
            await engine.reader.sync()
        assert caught.value.code == "bad_patch"
        assert differing(engine.tensors, before) == []
        await engine.reader.sync()
        assert engine.wrong(trainer.history) == []

    async def test_a_wrong_delta_does_not_cost_sound_weights_their_version(self, trainer: Trainer) -> None:
        engine = await ready(trainer)
        record = await Log(trainer.store).manifest(2)
        assert isinstance(record, DeltaRecord)
        await forge(trainer.store, record.slot, digest="1" * 16)
        with pytest.raises(CorruptError):
            await engine.reader.sync()
        assert engine.state() == (1, False)
        assert engine.wrong(trainer.history) == []


class TestMovedMemory:
    """An engine that offloads its weights has them elsewhere afterwards: not where the reader writes."""

    async def engine(self, trainer: Trainer, **options: Any) -> tuple[dict[str, Any], AsyncReader]:
        tensors: dict[str, Any] = blank(trainer.model)
        embed = torch.zeros(12, 8, dtype=torch.bfloat16)
        tensors["model.embed_tokens.weight"] = torch.nn.Parameter(embed)
        reader = await open_reader(trainer.store, tensors, **options)
        await reader.sync()
        return tensors, reader

    @pytest.mark.spec("DS092")
    async def test_between_two_versions(self, trainer: Trainer) -> None:
        tensors, reader = await self.engine(trainer)
        parameter = tensors["model.embed_tokens.weight"]
        parameter.data = parameter.data.clone()
        await trainer.step(30)
        before = bits(tensors)
        for _ in range(2):
            with pytest.raises(InputError, match="other memory") as caught:
                await reader.sync()
            assert (caught.value.code, caught.value.where) == ("wrong_memory", "model.embed_tokens.weight")
            assert (reader.version, reader.torn) == (None, True)
        assert differing(bits(tensors), before) == []
        again = await open_reader(trainer.store, tensors)
        await again.sync()
        assert differing(bits(tensors), trainer.history[2]) == []

    @pytest.mark.spec("DS092")
    @pytest.mark.parametrize("anchor", [False, True])
    async def test_by_the_pause_itself(self, trainer: Trainer, anchor: bool) -> None:
        moving: list[Any] = []

        @asynccontextmanager
        async def pause() -> AsyncIterator[None]:
            for parameter in moving:
                parameter.data = parameter.data.clone()
            yield

        tensors, reader = await self.engine(trainer, pause=pause)
        moving.append(tensors["model.embed_tokens.weight"])
        await trainer.step(30, anchor=anchor)
        before = bits(tensors)
        with pytest.raises(InputError, match="other memory"):
            await reader.sync()
        assert (reader.version, reader.torn) == (None, True)
        assert differing(bits(tensors), before) == []

    async def test_values_that_change_in_place_are_no_move(self, trainer: Trainer) -> None:
        tensors, reader = await self.engine(trainer)
        embed = tensors["model.embed_tokens.weight"].data
        embed.copy_(embed.clone())
        await trainer.step(30)
        await reader.sync()
        assert differing(bits(tensors), trainer.history[2]) == []
