"""What running readers attest of their memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import deltastore
from deltastore.errors import CorruptError, DeltastoreError, InputError, TornError
from deltastore.format.attestation import Attestation
from deltastore.format.canonical import canonical_bytes, seal
from deltastore.layout.engines.vllm import vllm
from deltastore.layout.memory import bits_of
from deltastore.reader.opening import open_reader
from deltastore.replay import read_table
from tests.doubles.models import copy_of, small_model
from tests.doubles.stores import contents, copied, memory_store
from tests.doubles.training import Trainer
from tests.reader.shards import Shard, parts_of
from tests.reader.test_shard_engines import EXPERTS

from .live_streams import ENGINES, compared, experts, refused, small

pytestmark = pytest.mark.usefixtures("small_windows")


class TestAttestations:
    """What running readers say."""

    async def test_a_reader_of_everything(self, tmp_path: Path) -> None:
        trainer = await small()
        tensors = copy_of(trainer.model)
        reader = await open_reader(trainer.store, tensors)
        with pytest.raises(TornError):
            await reader.attest()
        for version in (1, 4):
            await reader.sync(version)
            said = await reader.attest(tmp_path / "out" / f"{version}.json", label="engine", nonce="0" * 32)
            assert (said.version, said.label, said.nonce, said.boxes) == (version, "engine", "0" * 32, None)
            report = await compared(trainer.store, tmp_path / "out" / f"{version}.json")
            assert report.ok
            assert (report.version, report.attested, report.claimed) == (version, True, (version,))
        with pytest.raises(InputError):
            await reader.attest(nonce="X")

    async def test_memory_is_read_and_not_believed(self, tmp_path: Path) -> None:
        trainer = await small()
        tensors = copy_of(trainer.model)
        reader = await open_reader(trainer.store, tensors)
        await reader.sync()
        name = next(name for name, tensor in tensors.items() if tensor.ndim == 2 and tensor.size)
        bits_of(name, tensors[name])[0, 0] ^= 1
        await reader.attest(tmp_path / "a.json")
        report = await compared(trainer.store, tmp_path / "a.json")
        assert not report.ok
        assert report.differing == 1
        assert report.apart[0].tensor == name
        assert reader.version == 4

    @pytest.mark.parametrize(("engine", "options"), ENGINES)
    async def test_all_ranks_of_an_engine_in_a_folder(
        self, engine: Any, options: dict[str, Any], tmp_path: Path
    ) -> None:
        trainer = await experts()
        shards = []
        for rank in range(options["tp"]):
            shards.append(await Shard.start(trainer.store, engine(EXPERTS, **{**options, "rank": rank})))
            await shards[-1].reader.sync()
            await shards[-1].reader.attest(tmp_path / f"rank{rank}.json")
        report = await compared(trainer.store, tmp_path)
        assert report.ok
        assert report.sources == tuple(f"rank{rank}.json" for rank in range(options["tp"]))
        assert report.elements >= sum(one.size for one in trainer.model.values())
        await shards[1].reader.sync(1)
        await shards[1].reader.attest(tmp_path / "rank1.json")
        report = await compared(trainer.store, tmp_path)
        assert not report.ok
        assert (report.version, report.claimed, report.instead) == (2, (1, 2), None)
        assert {one.source for one in report.apart} == {"rank1.json"}
        assert (await compared(trainer.store, tmp_path / "rank1.json")).ok
        report = await compared(trainer.store, tmp_path / "rank1.json", version=2)
        assert (report.ok, report.instead) == (False, 1)

    async def test_copies_and_lower_halves_are_the_readers_to_tell(self, tmp_path: Path) -> None:
        trainer = await experts()
        layout = vllm(EXPERTS, tp=4, ep=4, rank=3, router="F32")
        shard = await Shard.start(trainer.store, layout)
        await shard.reader.sync()
        name = "model.layers.0.mlp.gate.weight"
        bits_of("", shard.params[name])[1, 2] ^= 1
        said = await shard.reader.attest(tmp_path / "a.json")
        assert said.astray == (name,)
        report = await compared(trainer.store, tmp_path / "a.json")
        assert not report.ok
        assert (report.differing, report.astray) == (0, [("a.json", name)])

    async def test_another_stream_table_or_log(self, tmp_path: Path) -> None:
        trainer = await small()
        reader = await open_reader(trainer.store, copy_of(trainer.model))
        await reader.sync()
        await reader.attest(tmp_path / "a.json")
        other = await small()
        assert "stream" in str(await refused(other, tmp_path / "a.json", "bad_argument"))
        plain = (await reader.attest()).model_dump(mode="json")
        for member in ("table", "record"):
            (tmp_path / "b.json").write_bytes(canonical_bytes(seal({**plain, member: "a" * 64})))
            await refused(trainer, tmp_path / "b.json", "bad_argument")
        (tmp_path / "b.json").write_bytes(canonical_bytes(seal({**plain, "version": 77})))
        assert "b.json" in str(await refused(trainer, tmp_path / "b.json", "no_version"))

    async def test_every_claim_is_held_against_the_log(self, tmp_path: Path) -> None:
        trainer = await small()
        reader = await open_reader(trainer.store, copy_of(trainer.model))
        await reader.sync()
        await reader.attest(tmp_path / "a.json")
        await reader.sync(2)
        older = (await reader.attest()).model_dump(mode="json")
        (tmp_path / "b.json").write_bytes(canonical_bytes(seal({**older, "record": "f" * 64})))
        assert "b.json is about version 2" in str(await refused(trainer, tmp_path, "bad_argument"))
        for version in (77, 2**53 - 1):
            (tmp_path / "b.json").write_bytes(canonical_bytes(seal({**older, "version": version})))
            assert "b.json" in str(await refused(trainer, tmp_path, "no_version"))

    async def test_readers_of_different_versions_are_no_fleet(self, tmp_path: Path) -> None:
        model = small_model()
        trainer = await Trainer.create(memory_store(), model)
        await trainer.publish()
        reader = await open_reader(trainer.store, copy_of(model))
        for version in (0, 1):
            await reader.sync(version)
            await reader.attest(tmp_path / f"{version}.json")
        report = await compared(trainer.store, tmp_path)
        assert (report.ok, report.agreed, report.found) == (False, False, 0), "the weights are the same"
        assert (await compared(trainer.store, tmp_path / "0.json")).ok

    async def test_nothing_compared_is_no_success(self, tmp_path: Path) -> None:
        trainer = await small()
        reader = await open_reader(trainer.store, copy_of(trainer.model))
        await reader.sync()
        said = (await reader.attest(label="engine", nonce="ab" * 16)).model_dump(mode="json")

        def write(name: str, **members: Any) -> None:
            (tmp_path / name).write_bytes(canonical_bytes(seal({**said, **members})))

        write("a.json", boxes=[], digests=[])
        assert "nothing to compare" in str(await refused(trainer, tmp_path, "bad_argument"))
        total = sum(tensor.size for tensor in trainer.model.values())
        arrays = (await read_table(trainer.store, said["table"])).arrays
        first = next(number for number, array in enumerate(arrays) if len(array.grid.extent) == 2)
        box = {"array": first, "start": [0, 0], "size": [1, 1]}
        for name, boxes in (("a.json", [box]), ("b.json", [{**box, "size": [1, 2]}])):
            write(name, boxes=boxes, digests=["0" * 16])
        report = await compared(trainer.store, tmp_path)
        assert (report.covered, report.total, report.elements) == (2, total, 3)
        write("c.json")
        report = await compared(trainer.store, tmp_path, nonce="ab" * 16)
        assert report.covered == total
        assert {claim[1::2] for claim in report.claims} == {("engine", "ab" * 16)}
        assert "stale" in str(await refused(trainer, tmp_path, "bad_argument", nonce="0" * 32))

    async def test_a_digest_is_compared_whatever_else_it_says(self, tmp_path: Path) -> None:
        trainer = await small()
        reader = await open_reader(trainer.store, copy_of(trainer.model))
        await reader.sync()
        plain = (await reader.attest()).model_dump(mode="json")
        for at in range(0, len(plain["digests"]), 5):
            digests = list(plain["digests"])
            digests[at] = f"{int(digests[at], 16) ^ 1:016x}"
            (tmp_path / "a.json").write_bytes(canonical_bytes(seal({**plain, "digests": digests})))
            report = await compared(trainer.store, tmp_path / "a.json")
            assert (report.differing, report.found, report.shares[None]) == (1, 1, 1)

    async def test_hostile_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        trainer = await small()
        layout = parts_of(trainer.model, 0, 2)
        shard = await Shard.start(trainer.store, layout)
        await shard.reader.sync()
        said = await shard.reader.attest()
        plain, data = said.model_dump(mode="json"), said.to_bytes()
        path = tmp_path / "a.json"
        for cut in (0, 1, len(data) // 2, len(data) - 1):
            path.write_bytes(data[:cut])
            assert await fails(trainer, path) == "bad_json"
        path.write_bytes(data.replace(b'"version":4', b'"version":3'))
        assert await fails(trainer, path) == "bad_hash"
        huge = {"array": 0, "start": [0, 0], "size": [1 << 50, 1]}
        boxes = plain["boxes"]
        for changes in (
            {"digests": plain["digests"][1:]},
            {"digests": [*plain["digests"], "0" * 16]},
            {"digests": ["x" * 16]},
            {"digests": [5]},
            {"boxes": [*boxes, huge]},
            {"boxes": [{**boxes[0], "array": 99}]},
            {"boxes": [{**boxes[0], "size": [0] * len(boxes[0]["size"])}]},
            {"boxes": [{**boxes[0], "start": boxes[0]["start"][:-1]}]},
            {"kind": "layout"},
            {"label": "x" * 201},
            {"more": 1},
        ):
            path.write_bytes(canonical_bytes(seal({**plain, **changes})))
            assert await fails(trainer, path) == "bad_json"
        path.write_bytes(canonical_bytes(seal({**plain, "format": 2})))
        assert await fails(trainer, path) == "newer_format"
        monkeypatch.setattr("deltastore.validate.live.files.ATTESTATION_BYTES", len(data) - 1)
        path.write_bytes(data)
        assert await fails(trainer, path) == "too_large"
        monkeypatch.setattr("deltastore.layout.held._MOST_MET", 3)
        monkeypatch.setattr("deltastore.validate.live.files.ATTESTATION_BYTES", len(data))
        assert await fails(trainer, path) == "bad_json"

    async def test_a_store_that_is_damaged(self, tmp_path: Path) -> None:
        trainer = await small()
        reader = await open_reader(trainer.store, copy_of(trainer.model))
        await reader.sync()
        await reader.attest(tmp_path / "a.json")
        objects = await contents(trainer.store)
        for key in (one for one in objects if one.startswith("packs/00000000000000000004/")):
            broken = await copied({**objects, key: objects[key][:-1] + bytes([objects[key][-1] ^ 1])})
            with pytest.raises(CorruptError) as caught:
                await compared(broken, tmp_path / "a.json")
            assert (caught.value.code, caught.value.rule, caught.value.where) == ("bad_hash", "DS044", key)

    def test_the_sync_face(self, tmp_path: Path) -> None:
        model = small_model()
        store = memory_store()
        with deltastore.create(store, model) as stream:
            reader = stream.reader(copy_of(model))
            reader.sync()
            said = reader.attest(tmp_path / "deep" / "er" / "a.json")
        assert isinstance(said, Attestation)
        assert (tmp_path / "deep/er/a.json").read_bytes() == said.to_bytes()
        assert [one.name for one in (tmp_path / "deep/er").iterdir()] == ["a.json"]
        (tmp_path / "file").write_bytes(b"")
        with deltastore.open(store) as stream:
            reader = stream.reader(copy_of(model))
            reader.sync()
            with pytest.raises(InputError, match="cannot write the attestation"):
                reader.attest(tmp_path / "file" / "a.json")


async def fails(trainer: Trainer, path: Path) -> str:
    with pytest.raises(DeltastoreError) as caught:
        await compared(trainer.store, path)
    assert caught.value.where is not None
    return caught.value.code
