"""Ways to break a stream so that one requirement tells, all hashes above it made right again."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from deltastore.format.canonical import canonical_bytes, seal
from deltastore.format.digest import MODULUS, digest_text
from deltastore.format.inventory import Inventory
from deltastore.format.pack import HEADER_BYTES, index_bytes, pack_key
from deltastore.format.records import AnchorRecord, DeltaRecord, record_key
from deltastore.kernels.rows import Encoding
from deltastore.log import Log
from tests.doubles.forging import change_record, fields_of, forge
from tests.doubles.stores import contents, flipped
from tests.doubles.training import Trainer
from tests.format.packing import rows_of, with_patch, with_row, with_rows

Break = Callable[[Trainer], Awaitable[None]]

VERSION = 3
SLOT = 6


async def manifest(trainer: Trainer) -> DeltaRecord:
    """The delta that is broken: the third, in a slot with others after it."""
    record = await Log(trainer.store).manifest(VERSION)
    assert isinstance(record, DeltaRecord)
    assert record.slot == SLOT
    return record


async def pack_of(trainer: Trainer) -> bytes:
    """The first pack of that delta."""
    record = await manifest(trainer)
    return (await contents(trainer.store))[pack_key(VERSION, record.packs[0].sha256)]


async def put_pack(trainer: Trainer, data: bytes, *, shift: int = 0) -> None:
    """Replace that pack, and make the record and all digests from it on fit."""
    record = await manifest(trainer)
    fields = await fields_of(trainer.store, SLOT)
    rows = fields["packs"][0]["rows"]
    sha256 = hashlib.sha256(data).hexdigest()
    await trainer.store.put(pack_key(VERSION, sha256), data)
    entry = {
        **fields["packs"][0],
        "sha256": sha256,
        "bytes": len(data),
        "index_sha256": hashlib.sha256(data[: index_bytes(rows)]).hexdigest(),
    }
    packs = [entry, *fields["packs"][1:]]
    statistics = {**fields["statistics"], "bytes": sum(pack["bytes"] for pack in packs)}
    await forge(trainer.store, SLOT, packs=packs, statistics=statistics)
    slot = record.slot
    while shift and await trainer.store.stat(record_key(slot)) is not None:
        digest = int((await fields_of(trainer.store, slot))["digest"], 16)
        await forge(trainer.store, slot, digest=digest_text((digest + shift) % MODULUS))
        slot += 1


def of_pack(change: Callable[[bytes], bytes], *, shift: int = 0) -> Break:
    """The pack is changed, and everything above it fits again."""

    async def broken(trainer: Trainer) -> None:
        await put_pack(trainer, change(await pack_of(trainer)), shift=shift)

    return broken


def of_patch(change: Callable[[bytes], bytes]) -> Break:
    """The first patch in runs is changed, and its row too."""

    def changed(data: bytes) -> bytes:
        rows = rows_of(data)
        number = int(np.flatnonzero(rows["encoding"] == Encoding.RUNS)[0])
        start = index_bytes(len(rows)) + int(rows["length"][:number].sum())
        return with_patch(data, number, change(data[start : start + int(rows["length"][number])]))

    return of_pack(changed)


def of_record(slot: int, **members: Any) -> Break:
    """Members of a record, and the chain after it sealed again."""

    async def broken(trainer: Trainer) -> None:
        await forge(trainer.store, slot, **members)

    return broken


async def reparented(trainer: Trainer) -> None:
    """A record in the middle names another one before it."""
    await change_record(trainer.store, SLOT, parent="a" * 64)


async def with_spaces(trainer: Trainer) -> None:
    """The last record, not in canonical form."""
    key = record_key(7)
    await trainer.store.put(key, (await contents(trainer.store))[key].replace(b",", b", "))


async def unsealed(trainer: Trainer) -> None:
    """The last record, with another nonce under the same seal."""
    fields = await fields_of(trainer.store, 7)
    await trainer.store.put(record_key(7), canonical_bytes({**fields, "nonce": "0" * 32}))


async def without_a_pack(trainer: Trainer) -> None:
    """A pack is gone."""
    await trainer.store.delete(pack_key(VERSION, (await manifest(trainer)).packs[0].sha256))


async def more_changed(trainer: Trainer) -> None:
    """Statistics that cannot be true."""
    fields = await fields_of(trainer.store, SLOT)
    await forge(trainer.store, SLOT, statistics={**fields["statistics"], "changed": 10**6})


async def beside_the_anchor(trainer: Trainer) -> None:
    """An object under the anchor that its inventory does not name."""
    record = await anchor(trainer)
    await trainer.store.put(record.anchor.prefix(0) + "array-00000/c/9/9/9", b"?")


async def flipped_pack(trainer: Trainer) -> None:
    """A bit in a pack."""
    record = await manifest(trainer)
    key = pack_key(VERSION, record.packs[0].sha256)
    await trainer.store.put(key, flipped(await pack_of(trainer), 70))


async def anchor(trainer: Trainer) -> AnchorRecord:
    """The manifest of version 0."""
    record = await Log(trainer.store).manifest(0)
    assert isinstance(record, AnchorRecord)
    return record


def of_anchor(suffix: str, change: Callable[[bytes], bytes], *, sealed: bool = True) -> Break:
    """An object of the anchor is changed; where ``sealed``, the inventory and the record fit again."""

    async def broken(trainer: Trainer) -> None:
        record = await anchor(trainer)
        prefix, objects = record.anchor.prefix(0), await contents(trainer.store)
        key = next(key for key in sorted(objects) if key.startswith(prefix) and key.endswith(suffix))
        changed = change(objects[key])
        await trainer.store.put(key, changed)
        if sealed:
            await reseal(trainer, record, key.removeprefix(prefix), changed)

    return broken


async def reseal(trainer: Trainer, record: AnchorRecord, key: str, changed: bytes) -> None:
    """The inventory and the record say what stands there now."""
    where = record.anchor.prefix(0) + "inventory.json"
    found = Inventory.from_bytes((await contents(trainer.store))[where], where)
    entries: list[dict[str, Any]] = [
        {"key": key, "bytes": len(changed), "sha256": hashlib.sha256(changed).hexdigest()}
        if entry.key == key
        else entry.model_dump()
        for entry in found.objects
    ]
    sealed = seal({"format": 1, "kind": "inventory", "objects": entries})
    data = canonical_bytes(sealed)
    await trainer.store.put(where, data)
    said = {
        **record.anchor.model_dump(),
        "inventory_sha256": sealed["sha256"],
        "inventory_bytes": len(data),
    }
    nbytes = sum(entry["bytes"] for entry in entries)
    statistics = {**record.statistics.model_dump(exclude_none=True), "bytes": nbytes}
    await forge(trainer.store, record.slot, anchor=said, statistics=statistics)


def without_first_chunk(shard: bytes) -> bytes:
    """The first entry of a shard's index says that there is no chunk; the index's checksum is right."""
    import google_crc32c

    entries = bytearray(shard)
    count = index_entries(shard)
    start = len(shard) - 4 - 16 * count
    entries[start : start + 16] = b"\xff" * 16
    entries[-4:] = google_crc32c.value(bytes(entries[start:-4])).to_bytes(4, "little")
    return bytes(entries)


def index_entries(shard: bytes) -> int:
    """How many chunks a shard has, all of them of one length and none missing."""
    length = int.from_bytes(shard[-4 - 8 : -4], "little")
    return (len(shard) - 4) // (length + 16)


def swapped_rows(data: bytes) -> bytes:
    """A pack whose first two rows change places, with their patches."""
    rows = rows_of(data)
    start = index_bytes(len(rows))
    first, second = int(rows["length"][0]), int(rows["length"][1])
    one, two = data[start : start + first], data[start + first : start + first + second]
    rows[[0, 1]] = rows[[1, 0]]
    return with_rows(data, rows)[:start] + two + one + data[start + first + second :]


def other_difference(data: bytes) -> bytes:
    """The first row says another digest difference."""
    return with_row(data, 0, difference=(int(rows_of(data)["difference"][0]) + 1) % MODULUS)


def other_check(data: bytes) -> bytes:
    """The first row has another hash."""
    return flipped(data, HEADER_BYTES + 28)


def padded(patch: bytes) -> bytes:
    """A patch that a word follows."""
    return patch + bytes(4)
