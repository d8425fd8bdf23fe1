"""The deep level: any tree of versions in small windows, in bounded memory, with few requests."""

from __future__ import annotations

import asyncio
import hashlib
import tracemalloc
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest

from deltastore.format.pack import index_bytes, pack_key
from deltastore.format.records import DeltaRecord, record_key
from deltastore.log import Log
from deltastore.validate.chain import walk_chain
from deltastore.validate.replaying import check_by_replay, families
from deltastore.validate.report import Findings
from deltastore.windows import opening, patches, rows
from tests.doubles.forging import fields_of, forge
from tests.doubles.models import Bits, Tensors, bits, cut_table, every_dtype, small_model, tiny_model
from tests.doubles.stores import WatchedStore, contents, memory_store
from tests.doubles.training import Trainer
from tests.doubles.writers import by_writers

from .asking import delta


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of some chunks, sorted runs of some rows, batches of a few patches."""
    monkeypatch.setattr(opening, "WINDOW_BYTES", 64)
    monkeypatch.setattr(rows, "SORTED_ROWS", 7)
    monkeypatch.setattr(rows, "_READ_ROWS", 3)
    monkeypatch.setattr(patches, "_BATCH_BYTES", 60)
    monkeypatch.setattr(patches, "_GAP_BYTES", 20)


async def deep(store: Any, *, jobs: int = 2) -> Findings:
    """The deep level alone, of all versions."""
    findings = Findings()
    chain = await walk_chain(store, findings)
    assert not findings.found
    for family in families(chain, list(chain.committed)):
        await check_by_replay(store, chain, family, findings, jobs=jobs)
    return findings


def count_changed(old: Bits, new: Bits) -> int:
    return sum(int((old[name] != new[name]).sum()) for name in old)


async def any_history(seed: int) -> Trainer:
    """Steps, rollbacks, anchors and versions without a change, on one of three models."""
    random = np.random.default_rng(seed)
    model = (tiny_model, small_model, every_dtype)[seed % 3]()
    table = cut_table(model, int(random.integers(3, 40)), seed % 2)
    trainer = await Trainer.create(
        memory_store(), model, table=table, pack_bytes=int(random.choice([1, 150, 1 << 20]))
    )
    for _ in range(12):
        match int(random.integers(6)):
            case 0:
                trainer.load(int(random.choice(sorted(trainer.history))))
                await trainer.reopen()
            case 1:
                await trainer.step(int(random.integers(1, 60)), anchor=True)
            case 2:
                await trainer.publish()
            case _:
                await trainer.step(int(random.integers(1, 60)))
    return trainer


@pytest.mark.spec("DS036", "DS046", "DS065", "DS093")
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("seed", range(6))
async def test_any_history_is_counted_as_it_was(seed: int) -> None:
    """Against the bits of every version, which the trainer remembers."""
    trainer = await any_history(seed)
    found = await deep(trainer.store, jobs=1 + seed % 3)
    assert found.problems == []
    log = Log(trainer.store)
    manifests = [await log.manifest(version) for version in sorted(trainer.history)]
    deltas = [record for record in manifests if isinstance(record, DeltaRecord)]
    changed = sum(count_changed(trainer.history[one.base], trainer.history[one.version]) for one in deltas)
    assert found.figures["changed"] == changed
    assert found.figures["changed_said"] == sum(one.statistics.changed for one in deltas) == changed
    assert found.figures["replayed"] == len(manifests)
    assert found.judged["DS093"] == len(manifests) - len(deltas)
    assert found.judged["DS046"] == sum(len(one.packs) for one in deltas)


@pytest.mark.usefixtures("tiny")
async def test_several_writers_of_one_chunk() -> None:
    model = tiny_model()
    trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 16))
    for _ in range(3):
        await trainer.step(60)
    record = await delta(trainer, 2)
    table = trainer.writer.table if hasattr(trainer.writer, "table") else cut_table(model, 16)
    owners = [lambda at: at % 3 == 0, lambda at: at % 3 == 1, lambda at: at % 3 == 2]
    await by_writers(trainer.store, table, record, trainer.history[1], trainer.history[2], owners)
    found = await deep(trainer.store)
    assert found.problems == []
    assert found.figures["changed"] == found.figures["changed_said"]


@pytest.mark.spec("DS065")
async def test_fewer_changes_said_than_there_are() -> None:
    trainer = await any_history(1)
    log = Log(trainer.store)
    records = [await log.manifest(version) for version in sorted(trainer.history)]
    record = next(one for one in records if isinstance(one, DeltaRecord) and one.statistics.changed > 1)
    statistics = (await fields_of(trainer.store, record.slot))["statistics"]
    more = {**statistics, "changed": statistics["changed"] + 1}
    await forge(trainer.store, record.slot, statistics=more)
    assert (await deep(trainer.store)).problems == [], "more may be said: a block that is sent whole"
    await forge(trainer.store, record.slot, statistics={**statistics, "changed": statistics["changed"] - 1})
    found = await deep(trainer.store)
    assert [(one.check, one.code, one.where, one.version) for one in found.problems] == [
        ("DS065", "bad_json", record_key(record.slot), record.version)
    ]
    assert found.broken == Counter({"DS065": 1})


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("jobs", [1, 4])
async def test_what_builds_on_a_wrong_version_is_not_blamed_and_what_stands_beside_it_is_judged(
    jobs: int,
) -> None:
    trainer = await Trainer.create(memory_store(), tiny_model(), table=cut_table(tiny_model(), 8))
    for _ in range(4):
        await trainer.step(60)  # versions 1 to 4
    trainer.load(1)
    await trainer.reopen()
    for _ in range(3):
        await trainer.step(60)  # versions 5 to 7 on version 1
    for version in (6, 2):
        await wrong_difference(trainer, version)
    found = await deep(trainer.store, jobs=jobs)
    assert [(one.check, one.version) for one in found.problems] == [("DS046", 2), ("DS046", 6)]
    assert found.judged["DS065"] == 2, "versions 1 and 5"
    assert {one.tensor for one in found.problems} <= {
        array.pattern for array in cut_table(tiny_model(), 8).arrays
    }


async def wrong_difference(trainer: Trainer, version: int) -> None:
    """One row says a wrong difference, and the digests of all that build on it follow from it."""
    record = await delta(trainer, version)
    data = bytearray((await contents(trainer.store))[pack_key(version, record.packs[0].sha256)])
    data[64 + 20] ^= 1
    shift = 1 if data[64 + 20] & 1 else -1
    fields = await fields_of(trainer.store, record.slot)
    entry = {
        **fields["packs"][0],
        "sha256": hashlib.sha256(data).hexdigest(),
        "index_sha256": hashlib.sha256(data[: index_bytes(record.packs[0].rows)]).hexdigest(),
    }
    await trainer.store.put(pack_key(version, entry["sha256"]), bytes(data))
    await forge(trainer.store, record.slot, packs=[entry, *fields["packs"][1:]])
    line: set[int] = set()
    for later in sorted(trainer.history)[version:]:
        record = await delta(trainer, later)
        if later == version or record.base in line:
            line.add(later)
            digest = (int(record.digest, 16) + shift) % (1 << 64)
            await forge(trainer.store, record.slot, digest=f"{digest:016x}")


async def test_an_object_that_vanishes_meanwhile() -> None:
    trainer = await Trainer.create(memory_store(), tiny_model(), table=cut_table(tiny_model(), 8))
    for _ in range(3):
        await trainer.step(60)
    record = await delta(trainer, 2)
    key = pack_key(2, record.packs[0].sha256)
    await trainer.store.delete(key)
    found = await deep(trainer.store)
    assert [(one.check, one.where, one.version) for one in found.problems] == [("DS063", key, 2)]
    cut = WatchedStore(trainer.store)
    shard = next(iter(sorted(one for one in await contents(trainer.store) if "/c/" in one)))
    await trainer.store.delete(shard)
    found = await deep(cut)
    assert [(one.where, one.version) for one in found.problems] == [(shard, 0)]


@pytest.mark.usefixtures("tiny")
async def test_one_object_of_an_anchor_is_on_its_way_at_a_time() -> None:
    class Slow(WatchedStore):
        now = most = 0

        async def get_range(self, key: str, start: int, length: int) -> bytes:
            return await self._waiting(key, super().get_range(key, start, length))

        async def get(self, key: str, *, limit: int) -> bytes:
            return await self._waiting(key, super().get(key, limit=limit))

        async def _waiting(self, key: str, reading: Coroutine[Any, Any, bytes]) -> bytes:
            self.now += "/c/" in key
            self.most = max(self.most, self.now)
            await asyncio.sleep(0.001)
            self.now -= "/c/" in key
            return await reading

    trainer = await Trainer.create(memory_store(), tiny_model(), table=cut_table(tiny_model(), 8))
    await trainer.step(60)
    spy = Slow(trainer.store)
    assert (await deep(spy, jobs=6)).problems == []
    assert spy.most == 1


async def test_each_object_of_an_anchor_once_and_a_pack_once_a_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = small_model()
    trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 16), pack_bytes=1 << 20)
    for _ in range(6):
        await trainer.step(200)
    spy = WatchedStore(trainer.store)
    await deep(spy)
    asked = Counter(call.key for call in spy.calls if call.operation in ("get", "get_range"))
    assert {count for key, count in asked.items() if key.startswith("packs/")} == {2}, "index and patches"
    assert {count for key, count in asked.items() if key.startswith("anchors/")} == {1}
    monkeypatch.setattr(opening, "WINDOW_BYTES", 1 << 8)
    windows = -(-sum(array.nbytes for array in bits(model).values()) // (1 << 7))
    spy.forget()
    await deep(spy)
    asked = Counter(call.key for call in spy.calls if call.operation == "get_range")
    counts = [count for key, count in asked.items() if key.startswith("packs/")]
    assert 2 < max(counts) <= 1 + windows


async def test_memory_does_not_grow_with_the_number_of_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "WINDOW_BYTES", 8192)
    monkeypatch.setattr(rows, "SORTED_ROWS", 100)
    monkeypatch.setattr(rows, "_READ_ROWS", 200)

    async def peak(versions: int) -> int:
        model: Tensors = {"w": np.zeros((400, 32), np.uint16)}
        table = cut_table(model, 32)
        trainer = await Trainer.create(memory_store(), model, table=table, pack_bytes=1 << 20)
        for _ in range(versions):
            model["w"][:, ::3] ^= 1
            await trainer.publish()
        assert (await delta(trainer, 1)).packs[0].rows > 300
        findings = Findings()
        chain = await walk_chain(trainer.store, findings)
        await check_by_replay(trainer.store, chain, list(chain.committed), findings)  # what is made but once
        tracemalloc.start()
        await check_by_replay(trainer.store, chain, list(chain.committed), findings)
        grown = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert findings.problems == []
        return grown

    few, many = await peak(12), await peak(30)
    assert many - few < 18 * 6000, "each version has 18,000 bytes of index rows"
