"""Publishing: what is committed, under which number and with which notes, and that it is the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deltastore.errors import ConflictError, InputError
from deltastore.format.limits import MAX_INTEGER
from deltastore.format.pack import pack_key
from deltastore.format.records import AnchorRecord, DeltaRecord
from deltastore.log import Log
from deltastore.stream import AsyncStream
from deltastore.validate import validate
from deltastore.writer.publishing import open_writer
from tests.doubles.models import bf16, bits, cut_table, differing, every_dtype, small_model, tiny_model
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


class TestPacks:
    """How changes become packs."""

    @pytest.mark.parametrize("slabs", [0, 2])
    async def test_small_packs_and_one_large_one_are_the_same_version(self, slabs: int) -> None:
        histories = []
        for pack_bytes in (1, 300, 1 << 20):
            model = small_model()
            table = cut_table(model, 10, slabs)
            trainer = await Trainer.create(memory_store(), model, table=table, pack_bytes=pack_bytes)
            await trainer.step(60)
            record = await Log(trainer.store).manifest(1)
            assert isinstance(record, DeltaRecord)
            histories.append((len(record.packs), record.digest, sum(pack.rows for pack in record.packs)))
            engine = await Engine.start(trainer.store, model)
            await engine.reader.sync()
            assert engine.wrong(trainer.history) == []
            assert (await validate(trainer.store)).ok
        packs, digests, rows = zip(*histories, strict=True)
        assert packs[0] == rows[0] > packs[1] > packs[2] == 1
        assert len(set(digests)) == len(set(rows)) == 1

    @pytest.mark.spec("DS042")
    async def test_packs_ascend_by_slab_without_overlap(self) -> None:
        model = small_model()
        trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 8, 3), pack_bytes=200)
        await trainer.step(80)
        record = await Log(trainer.store).manifest(1)
        assert isinstance(record, DeltaRecord)
        edges = [slab for pack in record.packs for slab in pack.slabs]
        assert edges == sorted(edges)
        assert edges[0] == 0
        assert edges[-1] == 3

    async def test_progress_counts_every_byte(self, trainer: Trainer) -> None:
        seen: list[int] = []
        trainer.model["norm"][0] = bf16(3)
        trainer.model["layers.1.weight"][0, 0] = bf16(5)
        published = await trainer.writer.publish(progress=seen.append)
        assert len(seen) == 2
        assert sum(seen) == published.nbytes

    @pytest.mark.parametrize("pack_bytes", [0, -1, (1 << 30) + 1, 1.5, True])
    async def test_an_impossible_pack_size_is_refused_before_anything(
        self, trainer: Trainer, pack_bytes: Any
    ) -> None:
        before = await contents(trainer.store)
        with pytest.raises(InputError) as caught:
            await open_writer(trainer.store, trainer.model, pack_bytes=pack_bytes)
        assert caught.value.code == "bad_argument"
        assert await contents(trainer.store) == before


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
