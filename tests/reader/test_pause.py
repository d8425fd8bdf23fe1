"""The engine is paused once for each delta, and nothing is fetched meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from deltastore.errors import TornError
from deltastore.format.records import DeltaRecord
from deltastore.log import Log
from deltastore.reader import following
from tests.doubles.stores import WatchedStore
from tests.doubles.training import Engine, Trainer

from .tearing import failing_scatter, ready


class TestPause:
    """The engine is paused once for each delta, and nothing is fetched meanwhile."""

    @pytest.mark.spec("DS090")
    async def test_once_however_far_behind_and_never_around_a_fetch(
        self, trainer: Trainer, store: WatchedStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(following, "_HELD_SHARE", 1000)  # of a model this small much changes in a step
        depth, entered = [0], [0]

        @asynccontextmanager
        async def pause() -> AsyncIterator[None]:
            entered[0] += 1
            depth[0] += 1
            yield
            depth[0] -= 1

        engine = await ready(trainer, pause=pause)
        entered[0] = 0
        fetched: list[int] = []
        store.before = lambda call: fetched.append(depth[0])
        await trainer.steps(3)
        await trainer.publish()
        fetched.clear()
        synced = await engine.reader.sync()
        assert synced.version == 6
        assert entered[0] == 1
        assert set(fetched) == {0}
        assert 0 < synced.pause_seconds <= synced.seconds
        await engine.reader.sync()
        assert entered[0] == 1

    @pytest.mark.spec("DS092")
    async def test_the_version_is_the_new_one_when_the_pause_ends_and_none_inside(
        self, trainer: Trainer
    ) -> None:
        seen: list[tuple[str, int | None, bool, list[str]]] = []
        holder: list[Engine] = []

        @asynccontextmanager
        async def pause() -> AsyncIterator[None]:
            reader = holder[0].reader
            seen.append(("enter", reader.version, reader.torn, []))
            yield
            seen.append(("leave", reader.version, reader.torn, holder[0].wrong(trainer.history)))

        holder.append(await Engine.start(trainer.store, trainer.model, pause=pause))
        await holder[0].reader.sync()
        assert [(what, version) for what, version, _, _ in seen] == [
            ("enter", None), ("leave", 0), ("enter", 0), ("leave", 1),
        ]  # fmt: skip
        assert not any(torn for _, _, torn, _ in seen)
        assert not any(wrong for _, _, _, wrong in seen)

    @pytest.mark.spec("DS092")
    async def test_a_repair_is_checked_before_the_pause_ends(
        self, trainer: Trainer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Weights that are torn and changed besides are never shown as a version, not even for a moment."""
        left: list[tuple[int | None, list[str]]] = []
        holder: list[Engine] = []

        @asynccontextmanager
        async def pause() -> AsyncIterator[None]:
            yield
            for engine in holder:
                version = engine.reader.version
                left.append((version, [] if version is None else engine.wrong(trainer.history)))

        holder.append(await ready(trainer, pause=pause))
        engine = holder[0]
        with failing_scatter(monkeypatch, 2, RuntimeError("no memory")), pytest.raises(TornError):
            await engine.reader.sync()
        record = await Log(trainer.store).manifest(2)
        assert isinstance(record, DeltaRecord)
        untouched = engine.tensors["model.router.weight"].view(np.uint32)
        mask = trainer.history[1]["model.router.weight"] == trainer.history[2]["model.router.weight"]
        untouched[mask] ^= 1
        left.clear()
        await engine.reader.sync()
        assert [version for version, _ in left] == [None, 0, 1, 2], "the repair, the anchor, the deltas"
        assert all(wrong == [] for _, wrong in left)
        assert engine.wrong(trainer.history) == []

    async def test_a_pause_that_cannot_begin_changes_nothing(self, trainer: Trainer) -> None:
        refuse = [False]

        @asynccontextmanager
        async def pause() -> AsyncIterator[None]:
            if refuse[0]:
                raise RuntimeError("the engine does not stop")
            yield

        engine = await ready(trainer, pause=pause)
        refuse[0] = True
        with pytest.raises(RuntimeError, match="does not stop"):
            await engine.reader.sync()
        assert engine.state() == (1, False)
        assert engine.wrong(trainer.history) == []
        refuse[0] = False
        await engine.reader.sync()
        assert engine.wrong(trainer.history) == []

    async def test_a_pause_that_fails_at_its_end_leaves_the_new_version(self, trainer: Trainer) -> None:
        fail = [False]

        @asynccontextmanager
        async def pause() -> AsyncIterator[None]:
            yield
            if fail[0]:
                raise RuntimeError("the engine does not start")

        engine = await ready(trainer, pause=pause)
        fail[0] = True
        with pytest.raises(RuntimeError, match="does not start"):
            await engine.reader.sync()
        assert engine.state() == (2, False)
        assert engine.wrong(trainer.history) == []
