"""Publishing weights that are not live: a delta against the tip as it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from deltastore.errors import ConflictError, CorruptError, InputError, NotFoundError
from deltastore.format.pack import pack_key
from deltastore.format.records import DeltaRecord
from deltastore.layout.cutting import plain_table
from deltastore.layout.live import LiveWeights, live_specs
from deltastore.log import Log
from deltastore.stores.base import Data
from deltastore.validate import validate
from deltastore.writer.whole import create_stream, publish_weights
from tests.doubles.forging import forge
from tests.doubles.models import bits, change, copy_of, differing, small_model, tiny_model
from tests.doubles.stores import WatchedStore, contents, memory_store
from tests.doubles.training import Engine, Trainer


def weights(model: Mapping[str, Any]) -> LiveWeights:
    return LiveWeights(plain_table(live_specs(model)), model)


async def test_versions_follow_one_another() -> None:
    store = memory_store()
    model = small_model()
    random = np.random.default_rng(3)
    await create_stream(store, weights(model))
    history = {0: bits(model)}
    for version in range(1, 6):
        change(model, random, 10 * version)
        published = await publish_weights(store, weights(model), label="cli", metadata={"n": version})
        assert (published.version, published.kind) == (version, "delta")
        history[version] = bits(model)
    assert (await publish_weights(store, weights(model))).changed == 0
    engine = await Engine.start(store, model)
    for version in (5, 1, 3, 0):
        await engine.reader.sync(version)
        assert engine.wrong(history) == []
    assert (await validate(store)).ok


@pytest.mark.spec("DS080")
async def test_it_fences_a_trainer() -> None:
    trainer = await Trainer.create(memory_store(), tiny_model())
    await trainer.step()
    model = copy_of(trainer.model)
    change(model, trainer.random)
    assert (await publish_weights(trainer.store, weights(model))).version == 2
    with pytest.raises(ConflictError) as caught:
        await trainer.step()
    assert caught.value.code == "fenced"


async def test_a_version_published_meanwhile_is_a_conflict() -> None:
    trainer = await Trainer.create(memory_store(), tiny_model())
    model = copy_of(trainer.model)
    change(model, trainer.random)
    done = False

    class Late(WatchedStore):
        async def put_if_absent(self, key: str, data: Data) -> bool:
            nonlocal done
            if not done:
                done = True
                await trainer.step()
            return await super().put_if_absent(key, data)

    with pytest.raises(ConflictError, match="version 1 was published meanwhile") as caught:
        await publish_weights(Late(trainer.store), weights(model))
    assert caught.value.code == "version_taken"
    assert (await validate(trainer.store)).ok
    assert (await publish_weights(trainer.store, weights(model))).version == 2
    engine = await Engine.start(trainer.store, model)
    await engine.reader.sync()
    assert differing(engine.tensors, bits(model)) == []


@pytest.mark.spec("DS062")
async def test_a_damaged_tip_is_never_built_upon() -> None:
    trainer = await Trainer.create(memory_store(), tiny_model())
    await trainer.step(8)
    record = await Log(trainer.store).manifest(1)
    assert isinstance(record, DeltaRecord)
    model = copy_of(trainer.model)
    change(model, trainer.random)
    sound = await contents(trainer.store)
    key = pack_key(1, record.packs[0].sha256)
    for data, code in (
        (sound[key][:-4], "bad_hash"),
        (sound[key][:-1] + b"\xff", "bad_hash"),
        (None, "lost_object"),
    ):
        await trainer.store.delete(key)
        if data is not None:
            await trainer.store.put(key, data)
        with pytest.raises(CorruptError) as caught:
            await publish_weights(trainer.store, weights(model))
        assert caught.value.where == key
        assert caught.value.code in (code, "bad_length", "bad_index")
    await trainer.store.put(key, sound[key])
    await forge(trainer.store, record.slot, digest="0123456789abcdef")
    with pytest.raises(CorruptError) as wrong:
        await publish_weights(trainer.store, weights(model))
    assert wrong.value.code == "bad_digest"
    assert (await Log(trainer.store).newest_manifest()).version == 1


async def test_refusals_write_nothing() -> None:
    trainer = await Trainer.create(memory_store(), tiny_model())
    await trainer.step(version=5)
    before = await contents(trainer.store)
    with pytest.raises(ConflictError) as taken:
        await publish_weights(trainer.store, weights(trainer.model), version=5)
    assert taken.value.code == "version_taken"
    for options in ({"metadata": {"a b": 1}}, {"label": "x" * 201}, {"version": -1}):
        with pytest.raises(InputError) as caught:
            await publish_weights(trainer.store, weights(trainer.model), **options)
        assert caught.value.code == "bad_argument"
    with pytest.raises(NotFoundError) as missing:
        await publish_weights(memory_store(), weights(trainer.model))
    assert missing.value.code == "no_stream"
    assert await contents(trainer.store) == before


async def test_the_first_version_of_a_born_stream() -> None:
    store = memory_store()
    trainer = await Trainer.create(store, tiny_model())
    objects = await contents(store)
    bare = memory_store()
    for slot in (0, 1):
        key = f"log/{slot:020d}.json"
        await bare.put(key, objects[key])
    assert (await publish_weights(bare, weights(trainer.model), version=9)).kind == "anchor"
    assert (await Log(bare).newest_manifest()).version == 9
    assert (await validate(bare)).ok
