"""Packs and manifests that were forged, all hashes right: rules and digests tell, before any write."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import Any

import pytest

from deltastore.errors import CorruptError
from deltastore.format.pack import HEADER_BYTES, index_bytes, pack_key
from deltastore.format.records import DeltaRecord, PackRef, record_key
from deltastore.log import Log
from tests.doubles.forging import fields_of, forge
from tests.doubles.models import small_model
from tests.doubles.stores import flipped, memory_store
from tests.doubles.training import Engine, Trainer

from .behind import behind, row_of, with_row


@pytest.mark.spec("DS061")
async def test_a_pack_of_another_version_under_this_ones_name() -> None:
    stream = await behind()
    old = await Log(stream.store).manifest(1)
    assert isinstance(old, DeltaRecord)
    foreign = stream.sound[pack_key(1, old.packs[0].sha256)]
    key = await stream.repack(0, foreign, rows=old.packs[0].rows, count=old.packs[0].count)
    await stream.refused("bad_index", where=key)


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
