"""Everything is fetched and checked before the first element is written: damage leaves the weights alone."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from deltastore.errors import CorruptError, DeltastoreError, StoreError, UnsupportedError
from deltastore.format.pack import HEADER_BYTES, ROW, index_bytes, pack_key
from deltastore.format.records import DeltaRecord, PackRef, record_key
from deltastore.log import Log
from deltastore.stores.memory import MemoryStore
from deltastore.validate import validate
from tests.doubles.forging import fields_of, forge
from tests.doubles.models import Bits, cut_table, differing, small_model
from tests.doubles.stores import WatchedStore, contents, fail_at, flipped, memory_store, restore
from tests.doubles.training import Engine, Trainer


@dataclass
class Behind:
    """An engine at version 1 of a stream that is at version 2, and what the store holds."""

    store: MemoryStore
    trainer: Trainer
    engine: Engine
    record: DeltaRecord
    sound: dict[str, bytes]

    @property
    def keys(self) -> list[str]:
        return [pack_key(2, pack.sha256) for pack in self.record.packs]

    async def refused(self, *codes: str, where: str | None = None) -> DeltastoreError:
        """The next sync fails with one of these codes and changes nothing."""
        with pytest.raises((CorruptError, UnsupportedError)) as caught:
            await self.engine.reader.sync()
        assert caught.value.code in codes, caught.value
        if where is not None:
            assert caught.value.where == where
        assert self.engine.reader.version == 1
        assert not self.engine.reader.torn
        assert self.engine.wrong(self.trainer.history) == []
        return caught.value

    async def mend(self) -> None:
        """Put the store right again."""
        await restore(self.store, self.sound)

    async def repack(self, number: int, data: bytes, **changes: Any) -> str:
        """Make the manifest name this pack instead, with all its hashes right; returns its key."""
        sha256 = hashlib.sha256(data).hexdigest()
        fields = await fields_of(self.store, self.record.slot)
        entry = {**fields["packs"][number], "sha256": sha256, "bytes": len(data), **changes}
        entry["index_sha256"] = hashlib.sha256(data[: index_bytes(entry["rows"])]).hexdigest()
        packs = [*fields["packs"][:number], entry, *fields["packs"][number + 1 :]]
        await self.store.put(pack_key(2, sha256), data)
        await forge(self.store, self.record.slot, packs=packs)
        return pack_key(2, sha256)


async def behind(pack_bytes: int = 1, changes: int = 30) -> Behind:
    store = memory_store()
    model = small_model()
    trainer = await Trainer.create(store, model, table=cut_table(model, 24), pack_bytes=pack_bytes)
    await trainer.step(5)
    engine = await Engine.start(store, model)
    await engine.reader.sync()
    await trainer.step(changes)
    record = await Log(store).manifest(2)
    assert isinstance(record, DeltaRecord)
    # The reader polls the log as it is damaged: it must not have seen the sound record.
    return Behind(store, trainer, engine, record, await contents(store))


async def at_version_1(trainer: Trainer) -> Engine:
    """An engine that adopted version 1, so that it need not fetch it."""
    engine = await Engine.start(trainer.store, trainer.model)
    for name, old in trainer.history[1].items():
        engine.tensors[name].view(old.dtype)[...] = old
    await engine.reader.sync(1)
    return engine


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.spec("DS090", "DS092")
async def test_a_store_that_fails_at_any_fetch_leaves_a_whole_version(when: str) -> None:
    store = WatchedStore(memory_store())
    trainer = await Trainer.create(store, small_model())
    for _ in range(3):
        await trainer.step(40)
    engine = await at_version_1(trainer)
    store.forget()
    await engine.reader.sync()
    total, failures = len(store.calls), []
    for number in range(1, total + 1):
        engine = await at_version_1(trainer)
        store.forget()
        setattr(store, when, fail_at(number))
        try:
            await engine.reader.sync()
        except StoreError:
            failures.append(engine.reader.version)
        store.before = store.after = None
        assert not engine.reader.torn
        assert engine.wrong(trainer.history) == []
        await engine.reader.sync()
        assert engine.reader.version == 3
        assert engine.wrong(trainer.history) == []
    assert len(failures) >= total - 2
    assert set(failures) == {1, 2}, "the first delta was whole when the second failed"


@pytest.mark.spec("DS044", "DS061", "DS090")
async def test_a_flipped_bit_anywhere_in_a_pack() -> None:
    stream = await behind(pack_bytes=1 << 20, changes=60)
    (key,) = stream.keys
    data = stream.sound[key]
    header = set(range(HEADER_BYTES))
    rows = set(range(HEADER_BYTES, index_bytes(stream.record.packs[0].rows), 7))
    patches = set(range(index_bytes(stream.record.packs[0].rows), len(data), 5))
    for at in sorted(header | rows | patches):
        await stream.store.put(key, flipped(data, at, at % 8))
        await stream.refused("bad_hash", where=key)
    await stream.mend()
    await stream.engine.reader.sync()
    assert stream.engine.wrong(stream.trainer.history) == []


@pytest.mark.spec("DS061", "DS063", "DS090")
async def test_truncated_extended_empty_and_missing_packs() -> None:
    stream = await behind()
    for key in stream.keys[:: max(1, len(stream.keys) // 3)]:
        data = stream.sound[key]
        for size in (0, 1, HEADER_BYTES, HEADER_BYTES + 44, len(data) - 4, len(data) - 1):
            await stream.store.put(key, data[:size])
            await stream.refused("bad_length", where=key)
        for more in (b"\0", data):
            await stream.store.put(key, data + more)
            await stream.refused("too_large", "bad_length", where=key)
        await stream.store.delete(key)
        await stream.refused("lost_object", where=key)
        await stream.mend()
    await stream.engine.reader.sync()
    assert stream.engine.wrong(stream.trainer.history) == []


@pytest.mark.spec("DS061")
async def test_swapped_packs() -> None:
    stream = await behind()
    assert len(stream.keys) > 3
    sizes = [len(stream.sound[key]) for key in stream.keys]
    first = next(at for at in range(len(sizes)) if sizes.count(sizes[at]) > 1)
    second = sizes.index(sizes[first], first + 1)
    a, b = stream.keys[first], stream.keys[second]
    await stream.store.put(a, stream.sound[b])
    await stream.store.put(b, stream.sound[a])
    await stream.refused("bad_hash", where=a)


@pytest.mark.spec("DS061")
async def test_a_pack_of_another_version_under_this_ones_name() -> None:
    stream = await behind()
    old = await Log(stream.store).manifest(1)
    assert isinstance(old, DeltaRecord)
    foreign = stream.sound[pack_key(1, old.packs[0].sha256)]
    key = await stream.repack(0, foreign, rows=old.packs[0].rows, count=old.packs[0].count)
    await stream.refused("bad_index", where=key)


def row_of(data: bytes, number: int) -> dict[str, int]:
    at = HEADER_BYTES + number * ROW.itemsize
    names = ("array", "chunk", "length", "count", "encoding", "difference")
    return dict(zip(names, struct.unpack_from("<IIIIIQ", data, at), strict=True))


def with_row(data: bytes, number: int, **changes: int) -> bytes:
    at = HEADER_BYTES + number * ROW.itemsize
    row = {**row_of(data, number), **changes}
    packed = struct.pack("<IIIIIQ", *row.values())
    return data[:at] + packed + data[at + len(packed) :]


INDEX_DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "magic": lambda data: b"\x00" + data[1:],
    "format 0": lambda data: data[:8] + b"\0\0" + data[10:],
    "flags": lambda data: data[:10] + b"\1\0" + data[12:],
    "reserved": lambda data: data[:63] + b"\1" + data[64:],
    "rows beyond the object": lambda data: data[:12] + struct.pack("<I", 1 << 22) + data[16:],
    "rows beyond the limit": lambda data: data[:12] + struct.pack("<I", (1 << 22) + 1) + data[16:],
    "no rows": lambda data: data[:12] + struct.pack("<I", 0) + data[16:],
    "body": lambda data: data[:40] + struct.pack("<Q", 1 << 60) + data[48:],
    "version": lambda data: data[:16] + struct.pack("<Q", 7) + data[24:],
    "array out of range": lambda data: with_row(data, 0, array=99),
    "chunk out of range": lambda data: with_row(data, 0, chunk=1 << 20),
    "largest chunk": lambda data: with_row(data, 0, chunk=(1 << 32) - 1),
    "count 0": lambda data: with_row(data, 0, count=0),
    "count above the chunk": lambda data: with_row(data, 0, count=1 << 20),
    "length not in words": lambda data: with_row(data, 0, length=row_of(data, 0)["length"] - 1),
    "length 0": lambda data: with_row(data, 0, length=0),
    "length beyond": lambda data: with_row(data, 0, length=(1 << 32) - 4),
    "encoding unknown": lambda data: with_row(data, 0, encoding=2),
    "raw with a wrong count": lambda data: with_row(data, 0, encoding=1),
    "rows not ascending": lambda data: with_row(
        data, 1, array=row_of(data, 0)["array"], chunk=row_of(data, 0)["chunk"]
    ),
}


@pytest.mark.parametrize("damage", INDEX_DAMAGE)
@pytest.mark.spec("DS040", "DS041", "DS042", "DS043", "DS061")
async def test_an_index_that_breaks_a_rule_though_every_hash_is_right(damage: str) -> None:
    stream = await behind(pack_bytes=1 << 20, changes=60)
    key = await stream.repack(0, INDEX_DAMAGE[damage](stream.sound[stream.keys[0]]))
    await stream.refused("bad_index", where=key)
    await stream.mend()
    await stream.engine.reader.poll()


async def test_a_pack_of_a_newer_format() -> None:
    stream = await behind(pack_bytes=1 << 20)
    data = stream.sound[stream.keys[0]]
    key = await stream.repack(0, data[:8] + b"\2\0" + data[10:])
    await stream.refused("newer_format", where=key)


@pytest.mark.spec("DS031", "DS032", "DS034", "DS036", "DS044")
async def test_a_patch_that_breaks_a_rule_though_every_hash_is_right() -> None:
    """Every word of the first patch replaced, every hash computed again: refused, or the digests tell."""
    probe = await behind(pack_bytes=1 << 20, changes=60)
    data = probe.sound[probe.keys[0]]
    start = index_bytes(probe.record.packs[0].rows)
    length = row_of(data, 0)["length"]
    for at in range(start, start + length):
        stream = await behind(pack_bytes=1 << 20, changes=60)
        body = flipped(data, at, at % 8)
        check = hashlib.sha256(body[start : start + length]).digest()[:16]
        body = body[: HEADER_BYTES + 28] + check + body[HEADER_BYTES + 44 :]
        await stream.repack(0, body)
        await stream.refused("bad_patch", "bad_digest")


@pytest.mark.spec("DS061")
@pytest.mark.parametrize(
    ("member", "value", "code"),
    [
        ("count", 1, "bad_index"),
        ("rows", 1, "bad_index"),
        ("bytes", 64 + 44 * 40, "bad_length"),
        ("index_sha256", "0" * 64, "bad_hash"),
        ("slabs", [1, 1], "bad_index"),
        ("slabs", [0, 4096], "bad_index"),
        ("sha256", "0" * 64, "lost_object"),
    ],
)
async def test_a_manifest_that_says_something_else_of_its_pack(member: str, value: Any, code: str) -> None:
    stream = await behind(pack_bytes=1 << 20, changes=60)
    fields = await fields_of(stream.store, stream.record.slot)
    await forge(stream.store, stream.record.slot, packs=[{**fields["packs"][0], member: value}])
    await stream.refused(code, *(("bad_hash",) if member in ("rows", "bytes") else ()))


@pytest.mark.spec("DS046", "DS062")
async def test_a_wrong_digest_difference_or_digest() -> None:
    stream = await behind(pack_bytes=1 << 20, changes=60)
    data = stream.sound[stream.keys[0]]
    key = await stream.repack(0, with_row(data, 0, difference=row_of(data, 0)["difference"] ^ 1))
    await stream.refused("bad_digest", where=key)
    stream = await behind()
    await forge(stream.store, stream.record.slot, digest="0" * 16)
    await stream.refused("bad_digest", where=record_key(stream.record.slot))


@pytest.mark.spec("DS062")
async def test_a_manifest_that_names_a_part_of_the_packs_or_one_twice() -> None:
    stream = await behind()
    fields = await fields_of(stream.store, stream.record.slot)
    await forge(stream.store, stream.record.slot, packs=fields["packs"][1:])
    await stream.refused("bad_digest", where=record_key(stream.record.slot))
    stream = await behind()
    fields = await fields_of(stream.store, stream.record.slot)
    await forge(stream.store, stream.record.slot, packs=[*fields["packs"], fields["packs"][0]])
    await stream.refused("bad_patch")


@pytest.mark.spec("DS045")
async def test_two_packs_that_write_one_element() -> None:
    stream = await behind()
    packs = [PackRef.model_validate(pack.model_dump()) for pack in stream.record.packs]
    doubled = [pack.model_dump(mode="json") for pack in (packs[0], *packs)]
    await forge(stream.store, stream.record.slot, packs=doubled)
    error = await stream.refused("bad_patch")
    assert "two writers" in str(error)


@pytest.mark.spec("DS060", "DS091")
async def test_a_base_that_is_not_what_it_should_be() -> None:
    stream = await behind()
    await forge(stream.store, stream.record.slot, base=0)
    with pytest.raises(CorruptError) as caught:
        await stream.engine.reader.sync()
    assert caught.value.code in ("bad_digest", "bad_patch")
    # The way to it led through version 0, and that is what is in memory.
    assert stream.engine.state() == (0, False)
    assert stream.engine.wrong(stream.trainer.history) == []
    stream = await behind()
    await forge(stream.store, stream.record.slot, table="0" * 64)
    await stream.refused("bad_chain")


@pytest.mark.spec("DS060")
async def test_a_base_that_is_not_in_the_log() -> None:
    stream = await behind()
    await stream.trainer.step(version=9)
    await stream.trainer.step(version=10)
    await forge(stream.store, stream.record.slot + 2, base=5)
    await stream.refused("bad_chain")


SOUND: list[Callable[[Behind], Awaitable[object]]] = [
    lambda stream: stream.store.put("packs/garbage", b"x"),
    lambda stream: stream.store.put("log/notes.txt", b"x"),
    lambda stream: stream.store.put(pack_key(2, "0" * 64), b"x"),
    lambda stream: stream.store.put("anchors/00000000000000000002/what.json", b"x"),
]


@pytest.mark.parametrize("litter", SOUND)
async def test_objects_that_no_record_names_are_nothing(
    litter: Callable[[Behind], Awaitable[object]],
) -> None:
    stream = await behind()
    await litter(stream)
    await stream.engine.reader.sync()
    assert stream.engine.wrong(stream.trainer.history) == []
    assert (await validate(stream.store)).problems == ()


@pytest.mark.spec("DS072", "DS073", "DS093")
async def test_a_damaged_anchor_never_becomes_a_version() -> None:
    """An anchor is written as it arrives; what is wrong leaves the reader torn, and it says so."""
    store = memory_store()
    trainer = await Trainer.create(store, small_model())
    sound = await contents(store)
    history: Bits = trainer.history[0]
    for key in sorted(sound):
        if not key.startswith(("anchors/", "tables/")):
            continue
        for damaged in (None, flipped(sound[key], len(sound[key]) // 2), sound[key][:-1]):
            await store.delete(key)
            if damaged is not None:
                await store.put(key, damaged)
            if key.startswith("tables/"):
                with pytest.raises(CorruptError) as caught:
                    await Engine.start(store, trainer.model)
            else:
                engine = await Engine.start(store, trainer.model)
                with pytest.raises(CorruptError) as caught:
                    await engine.reader.sync()
            assert caught.value.where == key
            await restore(store, sound)
            if key.startswith("anchors/"):
                assert engine.reader.version is None
                await engine.reader.sync()
                assert engine.state() == (0, False)
                assert differing(engine.tensors, history) == []


@pytest.mark.spec("DS093")
async def test_an_anchor_with_another_digest() -> None:
    store = memory_store()
    trainer = await Trainer.create(store, small_model())
    await forge(store, 2, digest="00000000deadbeef")
    engine = await Engine.start(store, trainer.model)
    for _ in range(2):
        with pytest.raises(CorruptError) as caught:
            await engine.reader.sync()
        assert caught.value.code == "bad_digest"
        assert engine.state() == (None, True)
