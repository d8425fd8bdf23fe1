"""Manifests and digests that were forged, all hashes right: rules and replay still tell."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deltastore.format.canonical import canonical_bytes, seal
from deltastore.format.digest import MODULUS, digest_text
from deltastore.format.inventory import Inventory
from deltastore.format.pack import pack_key
from deltastore.format.records import AnchorRecord, DeltaRecord, record_key, table_key
from deltastore.log import Log
from deltastore.replay import read_table
from deltastore.stores.local import LocalStore
from deltastore.stores.memory import MemoryStore
from deltastore.validate import validate
from deltastore.writer.opening import open_writer
from tests.doubles.forging import fields_of, forge
from tests.doubles.models import tiny_model
from tests.doubles.stores import contents
from tests.doubles.training import Engine, Trainer

from .asking import delta, first


class TestContent:
    """Rules of what manifests say."""

    @pytest.mark.spec("DS061")
    @pytest.mark.parametrize(
        ("member", "value", "codes"),
        [
            ("count", 10_000, ("bad_index",)),
            ("rows", 1, ("bad_hash", "bad_index")),
            ("bytes", 9_999, ("bad_length",)),
            ("index_sha256", "0" * 64, ("bad_hash",)),
            ("slabs", [0, 1], ("bad_index",)),
            ("sha256", "0" * 64, ("lost_object",)),
        ],
    )
    async def test_a_pack_that_is_not_what_its_entry_says(
        self, trainer: Trainer, member: str, value: Any, codes: tuple[str, ...]
    ) -> None:
        trainer.writer = await open_writer(trainer.store, trainer.model)
        await trainer.step(40)
        fields = await fields_of(trainer.store, 9)
        changed = [{**fields["packs"][0], member: value}]
        statistics = {**fields["statistics"], "bytes": sum(pack["bytes"] for pack in changed)}
        await forge(trainer.store, 9, packs=changed, statistics=statistics)
        code, where = await first(trainer)
        assert code in codes
        assert where == pack_key(5, changed[0]["sha256"])

    @pytest.mark.parametrize(("member", "value"), [("bytes", 1), ("elements", 1), ("changed", 10**6)])
    @pytest.mark.parametrize("slot", [2, 6])
    @pytest.mark.spec("DS064")
    async def test_statistics_that_are_not_true(
        self, trainer: Trainer, member: str, value: int, slot: int
    ) -> None:
        fields = await fields_of(trainer.store, slot)
        await forge(trainer.store, slot, statistics={**fields["statistics"], member: value})
        if (slot, member) == (2, "changed"):
            return  # of an anchor nobody can tell
        assert await first(trainer) == ("bad_json", record_key(slot))

    @pytest.mark.spec("DS062")
    async def test_a_pack_left_out(self, trainer: Trainer) -> None:
        record = await delta(trainer, 3)
        assert len(record.packs) > 2
        fields = await fields_of(trainer.store, record.slot)
        packs = fields["packs"][1:]
        size = sum(pack["bytes"] for pack in packs)
        statistics = {**fields["statistics"], "bytes": size, "changed": 1}
        await forge(trainer.store, record.slot, packs=packs, statistics=statistics)
        assert await first(trainer) == ("bad_digest", record_key(record.slot))

    @pytest.mark.spec("DS063")
    async def test_a_carried_file_that_was_never_stored(self, trainer: Trainer) -> None:
        await forge(trainer.store, 2, files=[{"name": "config.json", "bytes": 3, "sha256": "e" * 64}])
        assert await first(trainer) == ("lost_object", "files/" + "e" * 64)

    @pytest.mark.spec("DS072")
    async def test_an_inventory_that_leaves_an_object_out(self, trainer: Trainer) -> None:
        record = await Log(trainer.store).manifest(0)
        assert isinstance(record, AnchorRecord)
        prefix = record.anchor.prefix(0)
        inventory = Inventory.from_bytes(
            (await contents(trainer.store))[prefix + "inventory.json"], "inventory"
        )
        for left_out in range(len(inventory.objects)):
            kept = [entry for number, entry in enumerate(inventory.objects) if number != left_out]
            changed = Inventory.seal_new(objects=tuple(kept))
            await trainer.store.put(prefix + "inventory.json", changed.to_bytes())
            reference = {
                **record.anchor.model_dump(),
                "inventory_sha256": changed.sha256,
                "inventory_bytes": len(changed.to_bytes()),
            }
            statistics = {**record.statistics.model_dump(), "bytes": sum(entry.bytes for entry in kept)}
            await forge(trainer.store, 2, anchor=reference, statistics=statistics)
            assert await first(trainer) == ("bad_anchor", prefix + inventory.objects[left_out].key)

    async def test_a_table_that_breaks_a_rule(self, trainer: Trainer) -> None:
        record = await Log(trainer.store).manifest(0)
        table = await read_table(trainer.store, record.table)
        plain = table.model_dump(mode="json")
        wrong = copy.deepcopy(plain)
        wrong["arrays"] = wrong["arrays"][::-1]
        sealed = seal(wrong)
        await trainer.store.put(table_key(sealed["sha256"]), canonical_bytes(sealed))
        for slot in (2, 4, 5, 6, 7):
            await forge(trainer.store, slot, table=sealed["sha256"])
        assert await first(trainer) == ("bad_json", table_key(sealed["sha256"]))


class TestDigests:
    """Only a replay of the weights can tell these."""

    @pytest.mark.spec("DS062", "DS093")
    @pytest.mark.parametrize(("slot", "version"), [(2, 0), (4, 1), (7, 4)])
    async def test_a_wrong_digest_in_a_record(self, trainer: Trainer, slot: int, version: int) -> None:
        await forge(trainer.store, slot, digest="00000000deadbeef")
        report = await validate(trainer.store)
        assert (report.problems[0].code, report.problems[0].where) == ("bad_digest", record_key(slot))
        assert report.problems[0].version == version

    @pytest.mark.spec("DS062")
    async def test_digests_that_agree_with_one_another_but_not_with_the_weights(
        self, trainer: Trainer
    ) -> None:
        """A difference in a pack's index and the digests after it, all consistent, and all wrong."""
        record = await delta(trainer, 3)
        key = pack_key(3, record.packs[0].sha256)
        data = bytearray((await contents(trainer.store))[key])
        old = int.from_bytes(data[64 + 20 : 64 + 28], "little")
        data[64 + 20 : 64 + 28] = ((old + 1) % MODULUS).to_bytes(8, "little")
        await rename(trainer.store, record, bytes(data), shift=1)
        report = await validate(trainer.store)
        assert report.problems[0].code == "bad_digest"
        assert report.problems[0].version == 3
        assert (report.problems[0].where or "").startswith("packs/00000000000000000003/")
        engine = await Engine.start(trainer.store, trainer.model)
        with pytest.raises(Exception, match="not those of version") as caught:
            await engine.reader.sync()
        assert engine.reader.version == 2
        assert engine.wrong(trainer.history) == []
        assert getattr(caught.value, "code", "") == "bad_digest"


async def rename(store: MemoryStore | Any, record: DeltaRecord, data: bytes, shift: int) -> None:
    """Store a changed pack under its right name, and change the record and all digests after it to fit."""
    import hashlib

    sha256 = hashlib.sha256(data).hexdigest()
    await store.put(pack_key(record.version, sha256), data)
    fields = await fields_of(store, record.slot)
    rows = fields["packs"][0]["rows"]
    entry = {
        **fields["packs"][0],
        "sha256": sha256,
        "index_sha256": hashlib.sha256(data[: 64 + 44 * rows]).hexdigest(),
    }
    slot = record.slot
    await forge(store, slot, packs=[entry, *fields["packs"][1:]])
    while await store.stat(record_key(slot)) is not None:
        digest = int((await fields_of(store, slot))["digest"], 16)
        await forge(store, slot, digest=digest_text(digest + shift))
        slot += 1


async def test_a_record_that_hides_its_packs_is_named_before_the_pack_that_no_longer_fits() -> None:
    trainer = await Trainer.create(MemoryStore("memory://hidden"), tiny_model())
    model = trainer.model["w"] if "w" in trainer.model else next(iter(trainer.model.values()))
    for _ in range(3):
        model.reshape(-1).view(np.uint16)[:4] += 1
        await trainer.publish()
    manifests = [await Log(trainer.store).manifest(version) for version in (1, 2, 3)]
    fields = await fields_of(trainer.store, manifests[1].slot)
    statistics = {**fields["statistics"], "bytes": 0, "changed": 0}
    await forge(trainer.store, manifests[1].slot, packs=[], statistics=statistics)
    report = await validate(trainer.store)
    assert (report.problems[0].code, report.problems[0].where) == (
        "bad_digest",
        record_key(manifests[1].slot),
    )


async def test_an_object_that_is_a_link_is_a_problem(tmp_path: Path) -> None:
    trainer = await Trainer.create(LocalStore(tmp_path / "stream"), tiny_model())
    await trainer.step()
    record = await delta(trainer, 1)
    pack = tmp_path / "stream" / pack_key(1, record.packs[0].sha256)
    pack.rename(tmp_path / "elsewhere")
    pack.symlink_to(tmp_path / "elsewhere")
    report = await validate(trainer.store)
    assert [problem.code for problem in report.problems] == ["bad_key"]
    assert report.problems[0].version == 1
