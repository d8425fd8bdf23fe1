"""An engine that loaded the checkpoint already holds a version: it needs no anchor."""

from __future__ import annotations

import numpy as np
import pytest

from deltastore.log import Log
from tests.doubles.stores import WatchedStore
from tests.doubles.training import Engine, Trainer


def anchors(store: WatchedStore) -> list[str]:
    return [key for key in store.keys("get", "get_range") if key.startswith("anchors/")]


@pytest.mark.spec("DS091")
async def test_the_first_version_loaded_from_a_checkpoint(trainer: Trainer, store: WatchedStore) -> None:
    packs = 0
    for _ in range(3):
        packs += (await trainer.step(12)).nbytes
    engine = await Engine.start(store, trainer.model)
    store.forget()
    for name, old in trainer.history[0].items():
        engine.tensors[name].view(old.dtype)[...] = old
    synced = await engine.reader.sync()
    assert (synced.previous, synced.version) == (None, 4)
    assert engine.wrong(trainer.history) == []
    assert anchors(store) == []
    first = (await Log(store.inner).manifest(1)).statistics.bytes
    records = [info.size async for info in store.inner.list("log/")]
    assert packs + first < store.fetched < packs + first + 3 * sum(records), "the deltas and the log"


@pytest.mark.parametrize("version", [0, 1, 3, 4])
async def test_any_version_on_the_way(trainer: Trainer, store: WatchedStore, version: int) -> None:
    await trainer.steps(3)
    engine = await Engine.start(store, trainer.model)
    for name, old in trainer.history[version].items():
        engine.tensors[name].view(old.dtype)[...] = old
    store.forget()
    await engine.reader.sync()
    assert engine.reader.version == 4
    assert engine.wrong(trainer.history) == []
    assert anchors(store) == []
    used = {key.split("/")[1] for key in store.keys("get") if key.startswith("packs/")}
    assert used == {f"{later:020d}" for later in range(version + 1, 5)}


async def test_the_newest_version_already_there(trainer: Trainer, store: WatchedStore) -> None:
    engine = await Engine.start(store, trainer.model, loaded=True)
    store.forget()
    synced = await engine.reader.sync()
    assert (synced.version, synced.changed, synced.nbytes) == (1, 0, 0)
    assert [key for key in store.keys("get") if key.startswith(("anchors/", "packs/"))] == []


async def test_one_wrong_element_and_it_is_not_adopted(trainer: Trainer, store: WatchedStore) -> None:
    engine = await Engine.start(store, trainer.model, loaded=True)
    engine.tensors["model.steps"].view(np.uint64)[2] ^= np.uint64(1) << np.uint64(63)
    store.forget()
    await engine.reader.sync()
    assert engine.wrong(trainer.history) == []
    assert anchors(store) != []


async def test_a_version_of_a_branch_that_was_rolled_back_is_not_on_the_way(
    trainer: Trainer, store: WatchedStore
) -> None:
    await trainer.steps(2)
    abandoned = trainer.history[3]
    trainer.load(1)
    await trainer.reopen()
    await trainer.step()
    engine = await Engine.start(store, trainer.model)
    for name, old in abandoned.items():
        engine.tensors[name].view(old.dtype)[...] = old
    store.forget()
    await engine.reader.sync()
    assert (engine.reader.version, anchors(store) != []) == (4, True)
    assert engine.wrong(trainer.history) == []


async def test_adopting_on_the_way_to_an_older_version(trainer: Trainer, store: WatchedStore) -> None:
    await trainer.steps(3)
    engine = await Engine.start(store, trainer.model)
    for name, old in trainer.history[1].items():
        engine.tensors[name].view(old.dtype)[...] = old
    store.forget()
    await engine.reader.sync(2)
    assert engine.wrong(trainer.history) == []
    assert anchors(store) == []


async def test_nothing_changes_hands_when_versions_are_equal(trainer: Trainer, store: WatchedStore) -> None:
    """Of versions with the same weights the newest is adopted, so nothing is fetched for the others."""
    await trainer.publish()
    await trainer.publish()
    engine = await Engine.start(store, trainer.model, loaded=True)
    store.forget()
    assert (await engine.reader.sync()).version == 3
    assert [key for key in store.keys("get") if key.startswith(("anchors/", "packs/"))] == []
