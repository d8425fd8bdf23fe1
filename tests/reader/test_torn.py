"""Writes that fail half way, and weights that something else changed: said aloud, and repaired."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import numpy as np
import pytest

from deltastore.errors import CorruptError, DeltastoreError, StoreError, TornError
from deltastore.format.records import DeltaRecord
from deltastore.layout.memory import bits_of
from deltastore.log import Log
from deltastore.reader.targets import Targets
from tests.doubles.forging import forge
from tests.doubles.models import bits, differing, small_model
from tests.doubles.stores import WatchedStore, fail_always, fail_once
from tests.doubles.training import Engine, Trainer

Scatter = Callable[..., None]


@contextmanager
def failing_scatter(monkeypatch: pytest.MonkeyPatch, after: int, error: BaseException) -> Iterator[None]:
    """Make the ``after``-th patch of an apply fail when half of it is written."""
    real: Scatter = Targets.scatter
    calls = 0

    def scatter(self: Targets, array: int, box: Any, positions: Any, new: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == after:
            half = len(positions) // 2
            real(self, array, box, positions[:half], new[:half])
            raise error
        real(self, array, box, positions, new)

    with monkeypatch.context() as patch:
        patch.setattr(Targets, "scatter", scatter)
        yield


async def ready(trainer: Trainer, **options: Any) -> Engine:
    """An engine at the newest version; afterwards the trainer publishes one more."""
    engine = await Engine.start(trainer.store, trainer.model, **options)
    await engine.reader.sync()
    await trainer.step(60)
    return engine


@pytest.mark.spec("DS092")
@pytest.mark.parametrize("after", [1, 2, 4])
class TestHalfWritten:
    """Targets fail in the middle of an apply."""

    async def test_the_reader_says_that_it_is_torn(
        self, trainer: Trainer, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        engine = await ready(trainer)
        with (
            failing_scatter(monkeypatch, after, RuntimeError("no memory")),
            pytest.raises(TornError) as caught,
        ):
            await engine.reader.sync()
        assert (caught.value.code, caught.value.exit_status) == ("torn", 1)
        assert "no memory" in str(caught.value)
        assert engine.state() == (None, True)
        assert await engine.reader.poll(), "there is something to sync"

    async def test_the_same_delta_repairs_without_an_anchor(
        self, trainer: Trainer, store: WatchedStore, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        engine = await ready(trainer)
        with failing_scatter(monkeypatch, after, RuntimeError("no memory")), pytest.raises(TornError):
            await engine.reader.sync()
        store.forget()
        synced = await engine.reader.sync()
        assert (synced.previous, synced.version) == (None, 2)
        assert not engine.reader.torn
        assert engine.wrong(trainer.history) == []
        assert [key for key in store.keys("get", "get_range") if key.startswith("anchors/")] == []

    async def test_repair_goes_on_to_the_newest_version(
        self, trainer: Trainer, store: WatchedStore, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        engine = await ready(trainer)
        with failing_scatter(monkeypatch, after, RuntimeError("no memory")), pytest.raises(TornError):
            await engine.reader.sync()
        await trainer.steps(3)
        store.forget()
        await engine.reader.sync()
        assert engine.state() == (5, False)
        assert engine.wrong(trainer.history) == []
        assert [key for key in store.keys("get", "get_range") if key.startswith("anchors/")] == []

    async def test_the_anchor_repairs_where_the_delta_is_gone(
        self, trainer: Trainer, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        engine = await ready(trainer)
        with failing_scatter(monkeypatch, after, RuntimeError("no memory")), pytest.raises(TornError):
            await engine.reader.sync()
        await trainer.step(anchor=True)
        for key in [info.key async for info in trainer.store.list("packs/00000000000000000002/")]:
            await trainer.store.delete(key)
        await engine.reader.sync()
        assert engine.state() == (3, False)
        assert engine.wrong(trainer.history) == []

    async def test_a_repair_that_fails_leaves_it_torn_and_the_next_one_works(
        self, trainer: Trainer, store: WatchedStore, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        engine = await ready(trainer)
        for _ in range(2):
            with failing_scatter(monkeypatch, after, RuntimeError("no memory")), pytest.raises(TornError):
                await engine.reader.sync()
            assert engine.state() == (None, True)
        store.before = fail_always("get", prefix="packs/")
        with pytest.raises(StoreError):
            await engine.reader.sync()
        assert engine.state() == (None, True)
        store.before = None
        await engine.reader.sync()
        assert engine.wrong(trainer.history) == []

    async def test_torn_and_changed_by_something_else(
        self, trainer: Trainer, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        """The repair cannot trust what stands there: it ends with the right bits all the same."""
        engine = await ready(trainer)
        with failing_scatter(monkeypatch, after, RuntimeError("no memory")), pytest.raises(TornError):
            await engine.reader.sync()
        for name, tensor in engine.tensors.items():
            view = bits_of(name, tensor)
            view[...] = view ^ view.dtype.type(1)
        await engine.reader.sync()
        assert engine.state() == (2, False)
        assert engine.wrong(trainer.history) == []

    async def test_an_old_version_is_reached_from_torn_weights(
        self, trainer: Trainer, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        engine = await ready(trainer)
        with failing_scatter(monkeypatch, after, RuntimeError("no memory")), pytest.raises(TornError):
            await engine.reader.sync()
        await engine.reader.sync(0)
        assert engine.wrong(trainer.history) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), MemoryError()])
async def test_torn_by_anything_that_can_be_raised(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    engine = await ready(trainer)
    caught: list[BaseException] = []
    with failing_scatter(monkeypatch, 2, error):
        # Not pytest.raises: the event loop treats the first two of these in its own way.
        try:
            await engine.reader.sync()
        except BaseException as raised:  # noqa: BLE001
            caught.append(raised)
    assert len(caught) == 1
    assert engine.state() == (None, True)
    await engine.reader.sync()
    assert engine.wrong(trainer.history) == []


async def test_memory_that_does_not_hold_what_was_written(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await ready(trainer)
    with monkeypatch.context() as patch:
        patch.setattr(Targets, "scatter", lambda *_: None)
        with pytest.raises(DeltastoreError) as caught:
            await engine.reader.sync()
    assert caught.value.code == "bad_digest"
    assert engine.state() == (None, True)
    await engine.reader.sync()
    assert engine.wrong(trainer.history) == []


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


class TestPause:
    """The engine is paused once for each delta, and nothing is fetched meanwhile."""

    @pytest.mark.spec("DS090")
    async def test_once_for_each_delta_and_never_around_a_fetch(
        self, trainer: Trainer, store: WatchedStore
    ) -> None:
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
        assert entered[0] == 5
        assert set(fetched) == {0}
        assert 0 < synced.pause_seconds <= synced.seconds
        await engine.reader.sync()
        assert entered[0] == 5

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

    async def test_weights_that_move_between_staging_and_pause(self, trainer: Trainer) -> None:
        """An engine that swaps its weights out while it stops: the apply works on the bits it staged."""
        engine = await ready(trainer)
        before = bits(engine.tensors)
        assert differing(engine.tensors, before) == []
        await engine.reader.sync()
        assert engine.wrong(trainer.history) == []


@pytest.mark.spec("DS092", "DS093")
async def test_an_anchor_that_stops_arriving_leaves_the_reader_torn(
    trainer: Trainer, store: WatchedStore
) -> None:
    engine = await Engine.start(store, trainer.model)
    await engine.reader.sync()
    store.before = fail_once("get", "anchors/00000000000000000000/")
    with pytest.raises(StoreError):
        await engine.reader.sync(0)
    assert engine.reader.version == 1, "nothing was written yet"
    assert engine.wrong(trainer.history) == []
    shards = [0]

    def third_shard(call: Any) -> None:
        shards[0] += "/c/" in call.key
        if shards[0] == 3:
            fail_always("get")(call)

    store.before = third_shard
    with pytest.raises(StoreError):
        await engine.reader.sync(0)
    assert engine.state() == (None, True)
    store.before = None
    await engine.reader.sync()
    assert engine.state() == (1, False)
    assert engine.wrong(trainer.history) == []


def test_the_model_has_patches_to_tear() -> None:
    assert len(small_model()) == 10
