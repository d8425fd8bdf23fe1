"""Streams that are right: nothing is found, whatever their shape."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from deltastore.errors import NotFoundError
from deltastore.stores.base import Store
from deltastore.stores.memory import MemoryStore
from deltastore.validate import Report, validate
from deltastore.writer.opening import open_writer
from tests.doubles.forging import append_foreign
from tests.doubles.models import bf16, copy_of, cut_table, every_dtype, small_model, tiny_model
from tests.doubles.stores import WatchedStore, contents, memory_store
from tests.doubles.training import Trainer


async def sound(store: Store) -> Report:
    report = await validate(store)
    assert report.problems == ()
    assert report.ok
    return report


@pytest.mark.parametrize(
    ("limit", "slabs", "pack_bytes"), [(1 << 20, 0, 1 << 20), (16, 2, 1), (3, 0, 400), (5, 3, 90)]
)
async def test_cuts_and_packs_of_all_sizes(limit: int, slabs: int, pack_bytes: int) -> None:
    model = small_model()
    trainer = await Trainer.create(
        memory_store(), model, table=cut_table(model, limit, slabs), pack_bytes=pack_bytes
    )
    await trainer.steps(4, 40)
    report = await sound(trainer.store)
    assert (report.records, report.versions, report.anchors) == (8, 5, 1)
    assert report.packs >= 4
    assert report.nbytes > 0


async def test_trees_of_rollbacks_anchors_and_epochs() -> None:
    trainer = await Trainer.create(memory_store(), tiny_model())
    for back in (0, 1, 3, 2):
        await trainer.steps(2)
        await trainer.step(anchor=True)
        await trainer.publish()
        await append_foreign(trainer.store)
        trainer.load(back)
        await trainer.reopen()
    trainer.model["norm"][0] = bf16(0x55)
    await trainer.reopen()
    await trainer.steps(2)
    report = await sound(trainer.store)
    assert (report.versions, report.anchors) == (19, 6)


async def test_every_element_type() -> None:
    model = every_dtype()
    trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 3))
    for shift in range(1, 4):
        for tensor in model.values():
            flat = tensor.view(f"<u{tensor.dtype.itemsize}")
            flat[...] = np.roll(flat, shift)
        await trainer.publish()
    await sound(trainer.store)


async def test_streams_without_versions_or_elements() -> None:
    trainer = await Trainer.create(memory_store(), {"nothing": bf16(np.zeros((3, 0)))})
    await trainer.publish()
    await sound(trainer.store)
    bare = memory_store()
    objects = await contents(trainer.store)
    for slot in (0, 1):
        key = f"log/{slot:020d}.json"
        await bare.put(key, objects[key])
        assert (await sound(bare)).versions == 0


async def test_no_stream() -> None:
    store = memory_store()
    with pytest.raises(NotFoundError) as caught:
        await validate(store)
    assert caught.value.code == "no_stream"
    await store.put("log/readme.txt", b"no record")
    with pytest.raises(NotFoundError):
        await validate(store)


LITTER = [
    "garbage",
    "log/garbage",
    "log/00000000000000000002.json.bak",
    "log/99.json",
    "log/zzz",
    "packs/00000000000000000001/" + "0" * 64 + ".pack",
    "packs/00000000000000000099/" + "0" * 64 + ".pack",
    "tables/" + "0" * 64 + ".json",
    "anchors/00000000000000000000/" + "0" * 32 + "/zarr.json",
    "files/" + "0" * 64,
    "prepared/00000000000000000001/1.0/w.json",
    "readers/me.json",
]


async def test_objects_that_no_record_names_are_no_problem() -> None:
    trainer = await Trainer.create(memory_store(), tiny_model())
    await trainer.steps(2)
    for key in LITTER:
        await trainer.store.put(key, b"whatever")
    await sound(trainer.store)


async def test_what_a_fenced_writer_left_is_no_problem() -> None:
    store = WatchedStore(memory_store())
    trainer = await Trainer.create(store, tiny_model())
    await open_writer(store, copy_of(trainer.model))
    await trainer.store.put("packs/00000000000000000001/" + "a" * 64 + ".pack", b"of a zombie")
    await sound(store)


async def test_progress_reaches_its_total_and_never_goes_back() -> None:
    trainer = await Trainer.create(memory_store(), small_model())
    await trainer.steps(2, 30)
    seen: list[tuple[int, int]] = []
    await validate(trainer.store, progress=lambda done, total: seen.append((done, total)))
    dones = [done for done, _ in seen]
    assert dones == sorted(dones)
    assert len({total for _, total in seen}) == 1
    assert 0 < dones[-1] <= seen[-1][1]


async def test_validating_while_a_trainer_publishes() -> None:
    trainer = await Trainer.create(memory_store(), tiny_model())
    trainer.store = Yielding(trainer.store)
    trainer.writer = await open_writer(trainer.store, trainer.model)
    reports = await asyncio.gather(trainer.steps(8), *(validate(trainer.store) for _ in range(6)))
    for report in reports[1:]:
        assert isinstance(report, Report)
        assert report.problems == ()
    assert (await sound(trainer.store)).versions == 9


class Yielding(WatchedStore):
    """Lets the other tasks run before each call, as a store does whose calls take time."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        assert isinstance(inner, MemoryStore)

    async def get(self, key: str, *, limit: int) -> bytes:
        await asyncio.sleep(0)
        return await super().get(key, limit=limit)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        await asyncio.sleep(0)
        return await super().get_range(key, start, length)
