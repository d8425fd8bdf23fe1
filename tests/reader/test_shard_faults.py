"""A shard that meets damage, foreign hands and applies that stop half way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from deltastore.errors import CorruptError, InputError, TornError
from deltastore.format.pack import PackIndex, index_bytes, pack_key
from deltastore.kernels.rows import chunks_of
from deltastore.layout.drawing import Drawing
from deltastore.layout.live import live_specs
from deltastore.stores.memory import MemoryStore
from tests.doubles.forging import fields_of, forge
from tests.doubles.models import bf16, cut_table, small_model
from tests.doubles.stores import WatchedStore, contents, fail_once, memory_store, restore
from tests.doubles.training import Engine, Trainer
from tests.doubles.writers import by_writers
from tests.reader.behind import Behind, with_row
from tests.reader.shards import F32, Shard, held_bits, newest_delta, params_for, parts_of
from tests.reader.tearing import failing_scatter

EMBED = "model.embed_tokens.weight"


@dataclass
class Scene:
    """A stream at version 1 and a shard at version 0, which holds a third of the rows."""

    store: MemoryStore
    trainer: Trainer
    shard: Shard

    @property
    def embed(self) -> Any:
        return self.shard.params[EMBED].view(np.uint16)

    async def follows(self) -> None:
        """The shard comes to the newest version, and all of it is right."""
        await self.shard.reader.sync()
        assert self.shard.reader.version == self.trainer.writer.version
        assert self.shard.wrong(self.trainer.history) == []
        assert await self.shard.reader.verify()

    async def refused(self, code: str) -> None:
        """The next sync fails so, changes nothing, and leaves the version as it was."""
        before = held_bits(self.shard.params)
        version = self.shard.reader.version
        with pytest.raises(CorruptError) as caught:
            await self.shard.reader.sync()
        assert caught.value.code == code, caught.value
        after = held_bits(self.shard.params)
        assert all(before[name].tobytes() == after[name].tobytes() for name in before)
        assert (self.shard.reader.version, self.shard.reader.torn) == (version, False)


async def scene(limit: int = 16, changes: int = 200, pack_bytes: int = 1 << 20) -> Scene:
    """Chunks of ``limit`` elements: 16 are two rows, so some are held in part."""
    store = memory_store()
    model = small_model()
    trainer = await Trainer.create(store, model, table=cut_table(model, limit, 3), pack_bytes=pack_bytes)
    shard = await Shard.start(store, parts_of(model, 1, 3))
    await shard.reader.sync()
    if changes:
        await trainer.step(changes)
    return Scene(store, trainer, shard)


async def damaged(scene: Scene, key: str, at: int | None = None, *, cut: int | None = None) -> None:
    data = bytearray(await scene.store.get(key, limit=1 << 30))
    if at is not None:
        data[at] ^= 0x10
    await scene.store.put(key, bytes(data[:cut]))


@pytest.mark.usefixtures("by_ranges")
class TestDamagedPacks:
    """Nothing of a delta is written before all that is needed of it is right."""

    @pytest.mark.spec("DS094")
    async def test_a_wrong_byte_in_any_patch_that_is_needed(self) -> None:
        found = await scene()
        record = await newest_delta(found.trainer)
        (pack,) = record.packs
        sound = await contents(found.store)
        key, codes = pack_key(1, pack.sha256), list[str]()
        for at in range(index_bytes(pack.rows), pack.bytes, 31):
            other = await Shard.start(found.store, parts_of(found.trainer.model, 1, 3))
            await other.reader.sync(0)
            damage = Scene(found.store, found.trainer, other)
            await damaged(damage, key, at)
            try:
                await other.reader.sync()
            except CorruptError as error:
                codes.append(error.code)
            assert other.reader.version in (0, 1)
            assert other.wrong(found.trainer.history) == []
            await restore(found.store, sound)
            await damage.follows()
        assert len(codes) > 3
        assert set(codes) == {"bad_hash"}

    @pytest.mark.parametrize("at", [8, 20, 64, 70, 90, 100])
    async def test_a_changed_index(self, at: int) -> None:
        found = await scene()
        (pack,) = (await newest_delta(found.trainer)).packs
        sound = await contents(found.store)
        await damaged(found, pack_key(1, pack.sha256), at)
        await found.refused("bad_hash")
        await restore(found.store, sound)
        await found.follows()

    @pytest.mark.spec("DS061")
    @pytest.mark.parametrize(("slabs", "code"), [([4096, 4096], "bad_index"), ([1, 0], "bad_json")])
    async def test_slabs_that_cannot_be(self, slabs: list[int], code: str) -> None:
        """A shard might leave such a pack out, and never see its rows."""
        found = await scene()
        record = await newest_delta(found.trainer)
        fields = await fields_of(found.store, record.slot)
        await forge(found.store, record.slot, packs=[{**fields["packs"][0], "slabs": slabs}])
        await found.refused(code)

    async def test_a_store_that_gives_less_than_a_range(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = await scene()
        whole = found.store.get_range

        async def short(key: str, start: int, length: int) -> bytes:
            data = await whole(key, start, length)
            return data if start == 0 else data[:-1]

        monkeypatch.setattr(found.store, "get_range", short)
        await found.refused("bad_length")
        monkeypatch.undo()

    async def test_a_row_with_a_wrong_difference(self) -> None:
        found = await scene(limit=8)
        await found.follows()
        await found.trainer.step(200)
        record = await newest_delta(found.trainer)
        data = await found.store.get(pack_key(2, record.packs[0].sha256), limit=1 << 30)
        needed = found.shard.reader._needed
        assert needed is not None
        index = PackIndex.parse(data, needed.table, "pack")
        entries = needed.entries(chunks_of(index.rows))
        mine = int(np.flatnonzero((entries >= 0) & needed.whole[entries])[3])
        forged = with_row(data, mine, difference=int(index.rows["difference"][mine]) ^ 1)
        engine = await Engine.start(found.store, found.trainer.model)
        damage = Behind(found.store, found.trainer, engine, record, await contents(found.store))
        await damage.repack(0, forged)
        await found.refused("bad_digest")

    async def test_a_pack_that_was_cut_short(self) -> None:
        found = await scene()
        (pack,) = (await newest_delta(found.trainer)).packs
        sound = await contents(found.store)
        await damaged(found, pack_key(1, pack.sha256), cut=index_bytes(pack.rows) + 4)
        await found.refused("bad_length")
        await damaged(found, pack_key(1, pack.sha256), cut=50)
        await found.refused("bad_length")
        await found.store.delete(pack_key(1, pack.sha256))
        await found.refused("lost_object")
        await restore(found.store, sound)
        await found.follows()


class TestForeignHands:
    """Something else wrote to the parameters."""

    @pytest.mark.spec("DS095")
    @pytest.mark.parametrize("rows", [(4,), (4, 5, 4), (6, 7, 5)])
    async def test_in_a_chunk_held_in_part_even_where_the_delta_does_not_write(
        self, rows: tuple[int, ...]
    ) -> None:
        found = await scene(limit=48, changes=0)  # six rows: the last two of one, the first two of the next
        for row in rows:
            found.trainer.model[EMBED].view(np.uint16)[row, 0] += 1
            await found.trainer.publish()
        found.embed[0, 7] ^= 1
        with pytest.raises(CorruptError, match="held in part") as caught:
            await found.shard.reader.sync()
        assert caught.value.code == "bad_digest"
        assert found.shard.reader.torn
        assert found.embed[0, 0] == found.trainer.history[0][EMBED][4, 0]
        await found.follows()

    async def test_in_a_chunk_held_whole(self) -> None:
        found = await scene(limit=8, changes=0)
        found.trainer.model[EMBED].view(np.uint16)[5] += 1
        await found.trainer.publish()
        found.embed[1, :] += 1
        with pytest.raises(CorruptError) as caught:
            await found.shard.reader.sync()
        assert caught.value.code in ("bad_digest", "bad_patch")
        assert found.shard.reader.torn
        await found.follows()

    @pytest.mark.parametrize("limit", [8, 48, 1 << 20])
    async def test_verify_finds_it_anywhere(self, limit: int) -> None:
        found = await scene(limit)
        await found.follows()
        for name, param in found.shard.params.items():
            if param.size:
                flat = param.reshape(-1).view(np.uint8)
                flat[-1] ^= 0x40
                assert not await found.shard.reader.verify(), name
                assert found.shard.reader.torn
                await found.follows()

    async def test_new_memory_for_a_parameter(self) -> None:
        found = await scene(changes=0)
        layout = parts_of(found.trainer.model, 1, 3)
        params = params_for(layout)
        params[EMBED] = torch.zeros(4, 8, dtype=torch.bfloat16)
        shard = await Shard.start(found.store, layout, params)
        await shard.reader.sync()
        params[EMBED].data = torch.zeros(4, 8, dtype=torch.bfloat16)
        await found.trainer.step(30)
        with pytest.raises(InputError, match="other memory") as caught:
            await shard.reader.sync()
        assert (caught.value.code, caught.value.where) == ("wrong_memory", EMBED)
        assert shard.reader.torn


class TestTorn:
    """An apply that stops half way."""

    @pytest.mark.parametrize("after", [1, 3])
    async def test_it_is_finished_by_the_next_sync(self, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        found = await scene()
        with failing_scatter(monkeypatch, after, RuntimeError("no memory")), pytest.raises(TornError):
            await found.shard.reader.sync()
        assert (found.shard.reader.version, found.shard.reader.torn) == (None, True)
        await found.follows()

    async def test_several_deltas_in_one_step_are_finished_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = await scene()
        await found.trainer.steps(2, 50)
        with failing_scatter(monkeypatch, 2, RuntimeError("no memory")), pytest.raises(TornError):
            await found.shard.reader.sync()
        await found.trainer.step(50)
        await found.follows()

    async def test_what_was_written_to_meanwhile_is_loaded_anew(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = await scene()
        with failing_scatter(monkeypatch, 1, RuntimeError("no memory")), pytest.raises(TornError):
            await found.shard.reader.sync()
        found.embed[...] ^= 0x1111
        await found.follows()

    @pytest.mark.spec("DS074", "DS090")
    @pytest.mark.usefixtures("by_ranges")
    async def test_other_chunks_of_an_anchor_are_never_written(self) -> None:
        """Each range is answered with as many bytes of whole chunks from elsewhere in the same object."""
        model = {"w": bf16(np.arange(1, 161).reshape(20, 8))}
        trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 8))

        class Elsewhere(WatchedStore):
            async def get_range(self, key: str, start: int, length: int) -> bytes:
                moved = (start + 3 * 20) % (17 * 20) if start + length <= 20 * 20 else start
                return await super().get_range(key, moved, length)

        store = Elsewhere(trainer.store)
        shard = await Shard.start(store, parts_of(model, 1, 10))
        with pytest.raises(CorruptError) as caught:
            await shard.reader.sync()
        assert (caught.value.code, caught.value.rule, caught.value.tensor) == ("bad_anchor", "DS074", "w")
        found = held_bits(shard.params)
        assert all(found[name].tobytes() == shard.before[name].tobytes() for name in found)
        assert store.keys("get_range")
        other = await Shard.start(trainer.store, parts_of(model, 1, 10), shard.params)
        await other.reader.sync()
        assert other.wrong(trainer.history) == []

    @pytest.mark.usefixtures("by_ranges")
    async def test_an_anchor_that_fails_half_way(self) -> None:
        found = await scene()
        store = WatchedStore(found.store)
        shard = await Shard.start(store, parts_of(found.trainer.model, 1, 3))
        store.before = fail_once("get_range", "anchors/")
        with pytest.raises(Exception, match="the server is gone"):
            await shard.reader.sync()
        assert (shard.reader.version, shard.reader.torn) == (None, True)
        await Scene(found.store, found.trainer, shard).follows()


@pytest.mark.parametrize("limit", [8, 48])
async def test_patches_of_two_writers(limit: int) -> None:
    found = await scene(limit)
    history = found.trainer.history
    table = found.trainer.writer._live.table
    owners: list[Callable[[Any], Any]] = [lambda at: at % 3 == 0, lambda at: at % 3 != 0]
    await by_writers(found.store, table, await newest_delta(found.trainer), history[0], history[1], owners)
    await found.follows()


async def test_two_writers_of_one_element_are_refused() -> None:
    found = await scene(8)
    history = found.trainer.history
    table = found.trainer.writer._live.table
    twice: list[Callable[[Any], Any]] = [lambda at: at >= 0, lambda at: at >= 0]
    await by_writers(found.store, table, await newest_delta(found.trainer), history[0], history[1], twice)
    await found.refused("bad_patch")


class TestHeldTwice:
    """Elements in two parameters, widened ones, and tensors that are one memory."""

    async def test_copies_that_differ_are_found(self) -> None:
        model = {"w": bf16(np.arange(64).reshape(8, 8))}
        trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 16))
        (spec,) = live_specs(model)
        drawing = Drawing("twice", [spec])
        drawing.whole(spec, "first")
        drawing.param("second", (3, 8), spec.dtype)
        drawing.rows(spec, 4, 3, "second", 0)
        shard = await Shard.start(trainer.store, drawing.done())
        for count in (1, 30):
            await shard.reader.sync()
            assert shard.wrong(trainer.history) == []
            await trainer.step(count)
        await shard.reader.sync()
        shard.params["second"].view(np.uint16)[2, 7] ^= 1
        model["w"].view(np.uint16)[6, 0] += 1  # another element of the same chunk
        await trainer.publish()
        with pytest.raises(CorruptError, match="parameter 'second' holds a copy"):
            await shard.reader.sync()
        assert shard.reader.torn
        await shard.reader.sync()
        assert shard.wrong(trainer.history) == []
        shard.params["second"].view(np.uint16)[0, 0] ^= 1
        assert not await shard.reader.verify()

    async def test_the_lower_halves_of_widened_elements_are_zero(self) -> None:
        model = {"w": bf16(np.arange(64).reshape(8, 8) * 1021)}
        trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 16))
        (spec,) = live_specs(model)
        drawing = Drawing("wide", [spec])
        drawing.whole(spec, dtype=F32)
        for param in (np.full((8, 8), 7, np.float32), torch.full((8, 8), 7.0).T):
            shard = await Shard.start(trainer.store, drawing.done(), {"w": param})
            await shard.reader.sync()
            await trainer.step(9)
            await shard.reader.sync()
            assert shard.wrong(trainer.history) == []
            assert await shard.reader.verify()
            param[0, 0] = 0.1
            assert not await shard.reader.verify()
            await shard.reader.sync()
            assert shard.wrong(trainer.history) == []

    @pytest.mark.parametrize("limit", [8, 48])
    async def test_an_alias_in_the_stream_is_one_memory_here(self, limit: int) -> None:
        table = bf16(np.arange(48).reshape(6, 8))
        model = {"embed": table, "head": table.copy()}
        trainer = await Trainer.create(memory_store(), model, table=cut_table(model, limit))
        spec = next(spec for spec in live_specs(model) if spec.name == "embed")
        drawing = Drawing("tied", [spec], aliases={"head": "embed"})
        param = drawing.param("embed_tokens", (4, 8), spec.dtype)
        drawing.rows(spec, 1, 4, param, 0)
        drawing.tie("lm_head", "embed_tokens")
        memory = params_for(drawing.done())
        shard = await Shard.start(
            trainer.store, drawing.done(), {**memory, "lm_head": memory["embed_tokens"]}
        )
        shard.params.pop("lm_head")
        shard.before.pop("lm_head")
        await shard.reader.sync()
        for row in (0, 2, 5):
            for one in model.values():
                one.view(np.uint16)[row, 3] += 5
            await trainer.publish()
            await shard.reader.sync()
            assert shard.wrong(trainer.history) == []
            assert await shard.reader.verify()
        model["head"].view(np.uint16)[0, 0] += 1  # held by others
        await trainer.publish()
        await shard.reader.sync()
        model["head"].view(np.uint16)[2, 0] += 1
        await trainer.publish()
        with pytest.raises(InputError, match="changes them apart") as caught:
            await shard.reader.sync()
        assert caught.value.code == "wrong_memory"
        assert (shard.reader.version, shard.wrong(trainer.history)) == (4, [])

    async def test_an_alias_that_an_anchor_has_apart(self) -> None:
        model = {"embed": bf16(np.arange(48).reshape(6, 8)), "head": bf16(np.zeros((6, 8)))}
        trainer = await Trainer.create(memory_store(), model)
        spec = next(spec for spec in live_specs(model) if spec.name == "embed")
        drawing = Drawing("tied", [spec], aliases={"head": "embed"})
        drawing.whole(spec)
        shard = await Shard.start(trainer.store, drawing.done())
        with pytest.raises(InputError, match="one memory here") as caught:
            await shard.reader.sync()
        assert caught.value.code == "wrong_memory"
        assert shard.reader.torn
