"""Publishing: what is committed is the model to the bit, and nothing of it is visible before all is."""

from __future__ import annotations

import numpy as np
import pytest

from deltastore.format.pack import pack_key
from deltastore.format.records import AnchorRecord, DeltaRecord, record_key
from deltastore.log import Log
from deltastore.stream import AsyncStream
from deltastore.validate import validate
from tests.doubles.models import bf16, bits, every_dtype, small_model, tiny_model
from tests.doubles.stores import WatchedStore, contents, memory_store
from tests.doubles.training import Engine, Trainer


async def delta_of(store: WatchedStore, version: int) -> DeltaRecord:
    record = await Log(store).manifest(version)
    assert isinstance(record, DeltaRecord)
    return record


class TestVersions:
    """What a version is."""

    @pytest.mark.spec("DS005", "DS054", "DS062")
    async def test_many_versions_of_a_mixed_model(self) -> None:
        store = memory_store()
        trainer = await Trainer.create(store, small_model())
        for version in range(1, 13):
            published = await trainer.step(version * 3)
            assert (published.version, published.kind) == (version, "delta")
        engine = await Engine.start(store, trainer.model)
        for version in (12, 3, 7, 0, 12, 1):
            await engine.reader.sync(version)
            assert engine.reader.version == version
            assert engine.wrong(trainer.history) == []
        assert (await validate(store)).problems == ()

    async def test_what_publish_returns_is_what_the_manifest_says(self, trainer: Trainer) -> None:
        published = await trainer.step(5)
        record = await delta_of(trainer.store, 1)  # type: ignore[arg-type]
        assert (published.version, published.slot, published.kind) == (
            record.version,
            record.slot,
            record.kind,
        )
        assert published.elements == record.statistics.elements == 3 * 20 + 12
        assert published.changed == record.statistics.changed
        assert published.nbytes == record.statistics.bytes == sum(pack.bytes for pack in record.packs)
        assert published.manifest_bytes == len(record.to_bytes())
        assert record.base == 0

    async def test_nothing_changed(self, trainer: Trainer) -> None:
        published = await trainer.publish()
        record = await delta_of(trainer.store, 1)  # type: ignore[arg-type]
        assert (published.changed, published.nbytes, record.packs) == (0, 0, ())
        assert record.digest == (await Log(trainer.store).manifest(0)).digest
        engine = await Engine.start(trainer.store, trainer.model)
        assert (await engine.reader.sync()).version == 1
        assert engine.wrong(trainer.history) == []

    @pytest.mark.parametrize("value", [0x0000, 0x8000, 0x7FC1, 0xFF80])
    async def test_everything_changed(self, trainer: Trainer, value: int) -> None:
        for tensor in trainer.model.values():
            tensor[...] = bf16(value)
        before = trainer.history[0]
        expected = sum(int((before[name] != now).sum()) for name, now in bits(trainer.model).items())
        published = await trainer.publish()
        assert published.changed == expected
        engine = await Engine.start(trainer.store, trainer.model)
        await engine.reader.sync()
        assert engine.wrong(trainer.history) == []
        assert (await validate(trainer.store)).ok

    async def test_a_dense_change_is_not_larger_than_the_model(self) -> None:
        random = np.random.default_rng(1)
        trainer = await Trainer.create(memory_store(), {"w": bf16(random.integers(0, 1 << 16, (100, 100)))})
        trainer.model["w"][...] = bf16(random.integers(0, 1 << 16, (100, 100)))
        published = await trainer.publish()
        assert published.nbytes <= 20_000 + 64 + 44
        engine = await Engine.start(trainer.store, trainer.model)
        await engine.reader.sync()
        assert engine.wrong(trainer.history) == []

    async def test_only_the_sign_of_zero(self) -> None:
        trainer = await Trainer.create(memory_store(), {"w": bf16([0, 0x8000, 0])})
        trainer.model["w"][...] = bf16([0x8000, 0, 0])
        assert (await trainer.publish()).changed == 2
        trainer.model["w"][...] = bf16([0x8000, 0, 0x8000])
        assert (await trainer.publish()).changed == 1

    async def test_a_nan_that_stays_is_no_change_and_one_that_moves_is(self) -> None:
        trainer = await Trainer.create(memory_store(), {"w": bf16([0x7FC1, 0xFFA5, 0x7F81])})
        assert (await trainer.publish()).changed == 0
        trainer.model["w"][...] = bf16([0x7FC2, 0xFFA5, 0x7FC1])
        assert (await trainer.publish()).changed == 2

    async def test_every_element_type(self) -> None:
        model = every_dtype()
        trainer = await Trainer.create(memory_store(), model)
        for name, tensor in model.items():
            flat = tensor.view(f"<u{tensor.dtype.itemsize}")
            flat[...] = flat[::-1].copy()
            assert name
        await trainer.publish()
        await trainer.publish(anchor=True)
        engine = await Engine.start(trainer.store, model)
        for version in (1, 0, 2):
            await engine.reader.sync(version)
            assert engine.wrong(trainer.history) == []
        assert (await validate(trainer.store)).ok

    async def test_the_model_may_move_on_after_the_call(self, trainer: Trainer) -> None:
        await trainer.step()
        trainer.model["norm"][...] = bf16(0x1234)
        assert (await trainer.publish()).changed == len(trainer.model["norm"])
        engine = await Engine.start(trainer.store, trainer.model)
        await engine.reader.sync(1)
        assert engine.wrong(trainer.history) == []


class TestAnchors:
    """Versions stored whole on demand."""

    async def test_anchors_and_deltas_alternate(self, trainer: Trainer) -> None:
        for number in range(1, 9):
            published = await trainer.step(anchor=number % 3 == 0)
            assert published.kind == ("anchor" if number % 3 == 0 else "delta")
        engine = await Engine.start(trainer.store, trainer.model)
        for version in (8, 5, 3, 2, 6, 0, 7):
            await engine.reader.sync(version)
            assert engine.wrong(trainer.history) == []
        report = await validate(trainer.store)
        assert (report.problems, report.versions, report.anchors) == ((), 9, 3)

    async def test_an_anchor_of_unchanged_weights(self, trainer: Trainer) -> None:
        await trainer.publish(anchor=True)
        record = await Log(trainer.store).manifest(1)
        assert isinstance(record, AnchorRecord)
        assert record.statistics.changed == record.statistics.elements
        assert record.statistics.bytes == sum(
            len(data)
            for key, data in (await contents(trainer.store)).items()
            if key.startswith(record.anchor.prefix(1)) and not key.endswith("inventory.json")
        )


class TestOrder:
    """Nothing is visible before all of it is durable."""

    @pytest.mark.spec("DS005", "DS006")
    async def test_the_record_is_the_last_write_and_nothing_is_written_twice(self, trainer: Trainer) -> None:
        store = trainer.store
        assert isinstance(store, WatchedStore)
        for anchor in (False, True):
            store.forget()
            published = await trainer.step(anchor=anchor)
            writes = store.keys("put", "put_if_absent", "delete")
            assert writes[-1] == f"log/{published.slot:020d}.json"
            assert [key for key in writes if key.startswith("log/")] == writes[-1:]
            assert len(set(writes)) == len(writes)

    @pytest.mark.parametrize("count", [0, 1, 20])
    async def test_a_delta_is_one_read_its_packs_and_one_creation(self, trainer: Trainer, count: int) -> None:
        store = trainer.store
        assert isinstance(store, WatchedStore)
        store.forget()
        published = await trainer.step(count)
        record = await delta_of(store, published.version)
        packs = [("put", pack_key(published.version, pack.sha256)) for pack in record.packs]
        slot = record_key(published.slot)
        assert [(call.operation, call.key) for call in store.calls[: len(packs) + 2]] == [
            ("get", slot),
            *packs,
            ("put_if_absent", slot),
        ]

    async def test_a_poll_between_any_two_calls_sees_whole_versions_only(self) -> None:
        store = WatchedStore(memory_store())
        trainer = await Trainer.create(store, tiny_model())
        sizes: list[int] = []
        store.before = lambda call: sizes.append(len(store.inner._held.objects))  # type: ignore[attr-defined]
        record = await trainer.step(20)
        assert sizes == sorted(sizes)
        manifest = await Log(store.inner).manifest(record.version)
        assert isinstance(manifest, DeltaRecord)
        for pack in manifest.packs:
            assert (await store.inner.stat(pack_key(1, pack.sha256))) is not None


async def test_the_stream_face_does_the_same() -> None:
    model = tiny_model()
    async with await AsyncStream.create(memory_store(), model, metadata={"note": "x"}, label="me") as stream:
        writer = await stream.writer(model)
        assert (writer.version, writer.epoch) == (0, 2)
        model["norm"][0] = bf16(77)
        assert (await writer.publish(step=3)).version == 1
        weights = await stream.weights()
        assert weights.table.elements == 72
        assert [record.kind async for record in stream.records()] == [
            "birth",
            "epoch",
            "anchor",
            "epoch",
            "delta",
        ]
        assert (await stream.newest()).version == 1
        assert (await stream.manifest(0)).metadata == {"note": "x"}
