"""Making a stream: once, whole, and never over somebody else's."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from deltastore.errors import (
    ConflictError,
    DeltastoreError,
    FencedError,
    InputError,
    NotFoundError,
    StoreError,
)
from deltastore.format.records import AnchorRecord, BirthRecord, EpochRecord
from deltastore.log import Log
from deltastore.reader.opening import open_reader
from deltastore.stores.base import Data
from deltastore.stream import AsyncStream
from deltastore.validate import validate
from deltastore.writer.opening import open_writer
from tests.doubles.models import bf16, bits, blank, differing, small_model, tiny_model
from tests.doubles.stores import WatchedStore, contents, fail_at, memory_store
from tests.doubles.training import Engine


@pytest.mark.spec("DS050", "DS053", "DS055")
async def test_a_new_stream_is_a_birth_an_epoch_and_an_anchor() -> None:
    store = memory_store()
    await AsyncStream.create(store, small_model(), label="me", metadata={"note": "first"})
    records = [record async for record in Log(store).forwards()]
    assert [type(record) for record in records] == [BirthRecord, EpochRecord, AnchorRecord]
    assert [record.epoch for record in records] == [0, 1, 1]
    anchor = records[2]
    assert isinstance(anchor, AnchorRecord)
    assert (anchor.version, anchor.metadata, anchor.files) == (0, {"note": "first"}, ())
    assert (await validate(store)).ok


async def test_a_stream_is_made_once() -> None:
    store = memory_store()
    await AsyncStream.create(store, tiny_model())
    before = await contents(store)
    for model in (tiny_model(), small_model()):
        with pytest.raises(ConflictError, match="at version 0") as caught:
            await AsyncStream.create(store, model)
        assert (caught.value.code, caught.value.exit_status) == ("exists", 11)
    assert await contents(store) == before


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ({}, "bad_argument"),
        ({"": bf16([1])}, "bad_argument"),
        ({"w": np.zeros(2, object)}, "wrong_dtype"),
        ({"w": 3}, "wrong_memory"),
        ({"w": bf16(np.zeros((1,) * 17))}, "bad_argument"),
    ],
)
async def test_what_cannot_be_a_stream_leaves_nothing(model: dict[str, Any], code: str) -> None:
    store = memory_store()
    with pytest.raises(InputError) as caught:
        await AsyncStream.create(store, model)
    assert caught.value.code == code
    assert await contents(store) == {}


@pytest.mark.parametrize("options", [{"metadata": {"x": 0.5}}, {"label": "x" * 201}, {"cast": "F8_E4M3"}])
async def test_options_that_do_not_fit_leave_nothing(options: dict[str, Any]) -> None:
    store = memory_store()
    with pytest.raises(InputError):
        await AsyncStream.create(store, {"w": np.zeros(3, np.float32)}, **options)
    assert await contents(store) == {}


async def test_a_model_without_elements() -> None:
    store = memory_store()
    model = {"a": bf16(np.zeros((0, 3))), "b": bf16(np.zeros((4, 0)))}
    await AsyncStream.create(store, model)
    writer = await open_writer(store, model)
    assert writer.version == 0
    assert (await writer.publish()).changed == 0
    await writer.publish(anchor=True)
    reader = await open_reader(store, {"a": bf16(np.zeros((0, 3))), "b": bf16(np.zeros((4, 0)))})
    for version in (2, 0, 1):
        assert (await reader.sync(version)).version == version
    assert (await validate(store)).ok


async def test_a_creation_that_fails_at_any_call_is_taken_up_again() -> None:
    store = WatchedStore(memory_store())
    await AsyncStream.create(store, tiny_model())
    total = len(store.calls)
    for when in ("before", "after"):
        for number in range(1, total + 1):
            store = WatchedStore(memory_store())
            setattr(store, when, fail_at(number))
            made = False
            try:
                await AsyncStream.create(store, tiny_model(1))
                made = True
            except StoreError:
                pass
            store.before = store.after = None
            model = tiny_model(1 if made else 2)
            try:
                await AsyncStream.create(store, model)
                assert not made
            except ConflictError:
                model = tiny_model(1)
            engine = blank(model)
            await (await open_reader(store, engine)).sync()
            assert differing(engine, bits(model)) == []
            assert (await validate(store)).problems == ()


async def test_a_born_stream_has_nothing_to_read_and_is_taken_over() -> None:
    store = WatchedStore(memory_store())
    store.before = lambda call: fail_at(len(store.calls) if call.key.startswith("anchors/") else 0)(call)
    with pytest.raises(StoreError):
        await AsyncStream.create(store, tiny_model())
    store.before = None
    with pytest.raises(NotFoundError) as caught:
        await open_reader(store, tiny_model())
    assert caught.value.code == "no_version"
    report = await validate(store)
    assert (report.ok, report.versions) == (True, 0)
    model = small_model()
    writer = await open_writer(store, model)
    assert writer.version is None
    assert (await writer.publish()).version == 0
    engine = await Engine.start(store, model)
    await engine.reader.sync()
    assert differing(engine.tensors, bits(model)) == []


@pytest.mark.parametrize("creators", [2, 6])
async def test_racing_creators_make_one_stream_with_one_model(creators: int) -> None:
    store = memory_store()
    models = [{**tiny_model(number), f"only.of.{number}x": bf16([number])} for number in range(creators)]
    results = await asyncio.gather(
        *(AsyncStream.create(store, model, label=f"creator {number}") for number, model in enumerate(models)),
        return_exceptions=True,
    )
    won = [number for number, result in enumerate(results) if isinstance(result, AsyncStream)]
    for result in results:
        assert isinstance(result, AsyncStream | FencedError | ConflictError)
    assert len(won) == 1
    engine = await Engine.start(store, models[won[0]])
    assert (await engine.reader.sync()).version == 0
    assert differing(engine.tensors, bits(models[won[0]])) == []
    report = await validate(store)
    assert (report.ok, report.versions) == (True, 1)


async def test_a_stream_that_appears_during_creation_is_not_given_another_model() -> None:
    """Another creator finishes between this one's look and its epoch record."""
    store = memory_store()

    class Late(WatchedStore):
        async def put_if_absent(self, key: str, data: Data) -> bool:
            if len(self.keys("put_if_absent")) == 1:
                await AsyncStream.create(store, tiny_model(1))
            return await super().put_if_absent(key, data)

    with pytest.raises(DeltastoreError) as caught:
        await AsyncStream.create(Late(store), small_model())
    assert caught.value.code == "exists"
    engine = await Engine.start(store, tiny_model())
    assert (await engine.reader.sync()).version == 0
    assert differing(engine.tensors, bits(tiny_model(1))) == []
    assert (await validate(store)).ok
