"""Anchors: inventories, metadata, codecs, shards and their indexes, sums, carried files."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable

from deltastore.validate import Level

from .attack import OLD, WRITER, Attack, attack, rewritten, sealed
from .resealing import Objects, Rewriting, prefix_of, records_of
from .shards import Anchor, digests_from, with_checksum

SLOT = 2
FILES = frozenset({"reader", "shard", "pull", "replay", "follower", "shard follower", "writer"})
"""Who fetches no carried files."""

WHOLE = frozenset({"reader", "export", "pull", "replay"})
"""Who hashes objects whole, and so leaves their checksums alone."""

WHOLE_OBJECTS = "bad_anchor", "DS070 DS071 DS072 DS073 DS074 DS100"


def resealed_anchor(
    name: str,
    make: Callable[[Rewriting], None],
    codes: str,
    rules: str,
    level: Level = Level.STRUCTURE,
    passes: frozenset[str] = WRITER,
) -> Attack:
    """The chain is sealed again from the anchor on: followers see another one than they know."""
    return attack(name, rewritten(make), f"{codes} bad_chain", f"{rules} DS051", level=level, passes=passes)


def _shard(
    name: str,
    change: Callable[[bytes, int], bytes],
    rules: str = WHOLE_OBJECTS[1],
    passes: frozenset[str] = WRITER,
) -> Attack:
    """The first shard of the layers; ``change`` gets its bytes and where its index starts."""

    def make(rewriting: Rewriting) -> None:
        grid = Anchor(rewriting, SLOT).grid(1)
        key = f"array-00001/{grid.key(0)}"
        data = rewriting.objects[prefix_of(rewriting.records[SLOT]) + key]
        rewriting.replace_in_anchor(SLOT, key, change(data, len(data) - 16 * grid.places - 4))

    return resealed_anchor(f"shard: {name}", make, "bad_anchor bad_digest", rules, Level.CONTENT, passes)


def _index(name: str, *entries: tuple[int, int]) -> Attack:
    """Entries of its index, with the right checksum."""

    def change(data: bytes, start: int) -> bytes:
        index = bytearray(data[start:-4])
        for number, (offset, length) in enumerate(entries):
            struct.pack_into("<QQ", index, 16 * number, offset % (1 << 64), length % (1 << 64))
        return data[:start] + with_checksum(bytes(index))

    return _shard(name, change)


def _stored(name: str, key: str, change: Callable[[bytes], bytes | None], codes: str, rules: str) -> Attack:
    """Other bytes under the name of an object of the anchor; nobody seals anything."""

    def make(objects: Objects) -> Objects:
        whole = prefix_of(records_of(objects)[SLOT]) + key
        data = change(objects.pop(whole))
        return objects if data is None else {**objects, whole: data}

    return attack(f"stored: {name}", make, codes, rules, level=Level.CONTENT, passes=OLD)


def _other_inventory(data: bytes) -> bytes:
    """As long, and sealed: that it is another one only the record can tell."""
    found = json.loads(data)
    found["objects"][0]["sha256"] = "0" * 64
    return sealed(found)


def _more(name: str, key: str) -> Attack:
    """An object more under the anchor's prefix, which only a listing shows."""
    everybody = FILES | {"export"}

    def make(objects: Objects) -> Objects:
        return {**objects, prefix_of(records_of(objects)[SLOT]) + key: b"more"}

    return attack(f"anchor: {name}", make, "bad_anchor", "DS072", passes=everybody)


def _other_anchor(rewriting: Rewriting) -> None:
    """Shards of two arrays change places."""
    prefix = prefix_of(rewriting.records[SLOT])
    keys = ["array-00000/c/0/0/0", "array-00003/c/0/0/0"]
    first, second = (rewriting.objects[prefix + key] for key in keys)
    rewriting.replace_in_anchor(SLOT, keys[0], second)
    rewriting.replace_in_anchor(SLOT, keys[1], first)


def _of_another_version(rewriting: Rewriting) -> None:
    prefix = prefix_of(rewriting.records[SLOT])
    group = json.loads(rewriting.objects[prefix + "zarr.json"])
    group["attributes"]["deltastore"]["version"] = 1
    rewriting.replace_in_anchor(SLOT, "zarr.json", json.dumps(group).encode())


def _sums(change: Callable[[bytes], bytes]) -> Callable[[Rewriting], None]:
    def make(rewriting: Rewriting) -> None:
        data = rewriting.objects[prefix_of(rewriting.records[SLOT]) + "sums"]
        rewriting.replace_in_anchor(SLOT, "sums", change(data))

    return make


def _without_sums(rewriting: Rewriting) -> None:
    """No sums, which are optional, and a checksum that is wrong: ranges are under nothing else."""
    inventory, prefix = rewriting.inventory(SLOT), prefix_of(rewriting.records[SLOT])
    inventory["objects"] = [entry for entry in inventory["objects"] if entry["key"] != "sums"]
    del rewriting.objects[prefix + "sums"]
    rewriting.replace_inventory(SLOT, inventory)
    grid = Anchor(rewriting, SLOT).grid(1)
    key = f"array-00001/{grid.key(0)}"
    data = rewriting.objects[prefix + key]
    rewriting.replace_in_anchor(SLOT, key, data[:128] + bytes([data[128] ^ 1]) + data[129:])


def attacks() -> list[Attack]:
    """All of them."""
    last = (1 << 64) - 1
    return [
        resealed_anchor(
            "anchor: another digest, and all after it",
            lambda rewriting: digests_from(rewriting, SLOT, 1),
            "bad_digest",
            "DS093 DS062",
            Level.DEEP,
            WRITER | {"shard"},
        ),
        resealed_anchor("anchor: of another version", _of_another_version, "bad_anchor", "DS071"),
        resealed_anchor("anchor: shards of two arrays swapped", _other_anchor, *WHOLE_OBJECTS),
        _index("two chunks that overlap", (0, 132), (4, 132)),
        _index("two chunks in one place", (0, 132), (0, 132)),
        _index("a chunk near 2^64", (last - 131, 132)),
        _index("a chunk beyond", (1 << 62, 132)),
        _index("a chunk in the index", (270, 132)),
        _index("a chunk that is left out", (last, last)),
        _index("half of a chunk left out", (last, 132)),
        _index("a chunk of 2^64", (0, last)),
        _index("a chunk of nothing", (0, 0)),
        _index("a chunk of another length", (0, 131)),
        _shard(
            "a wrong checksum of its index",
            lambda data, _: data[:-1] + bytes([data[-1] ^ 1]),
            passes=WHOLE | WRITER,
        ),
        _shard(
            "a wrong checksum of a chunk",
            lambda data, _: bytes([data[0] ^ 1]) + data[1:],
            WHOLE_OBJECTS[1] + " DS093 DS062 DS095",
        ),
        _shard("cut short", lambda data, start: data[start:]),
        _shard("nothing", lambda data, _: b""),
        _shard("twice as long", lambda data, _: data + data),
        _shard(
            "other weights",
            lambda data, _: with_checksum(bytes([data[0] ^ 1]) + data[1:128]) + data[132:],
            WHOLE_OBJECTS[1] + " DS093 DS062 DS095 DS046 DS036",
        ),
        resealed_anchor(
            "sums: none, and a wrong checksum",
            _without_sums,
            "bad_anchor",
            "DS073",
            Level.CONTENT,
            WHOLE | WRITER,
        ),
        resealed_anchor("sums: cut short", _sums(lambda data: data[:-16]), *WHOLE_OBJECTS),
        resealed_anchor("sums: nothing", _sums(lambda _: b""), *WHOLE_OBJECTS),
        _stored("a shard gone", "array-00001/c/0/0/0", lambda _: None, "lost_object", "DS063"),
        _stored(
            "a shard flipped",
            "array-00001/c/0/0/0",
            lambda data: bytes([data[0] ^ 1]) + data[1:],
            "bad_hash bad_anchor",
            "DS073 DS074",
        ),
        _stored(
            "a shard shorter",
            "array-00001/c/0/0/0",
            lambda data: data[:-1],
            "bad_length bad_hash bad_anchor",
            "DS073",
        ),
        _stored(
            "metadata flipped", "zarr.json", lambda data: data.replace(b"3", b"2", 1), "bad_hash", "DS073"
        ),
        _stored("the inventory gone", "inventory.json", lambda _: None, "lost_object", "DS063"),
        _stored("the inventory cut short", "inventory.json", lambda data: data[:-1], "bad_length", "DS072"),
        _stored("the inventory longer", "inventory.json", lambda data: data + b" ", "too_large", "DS072"),
        _stored("another sound inventory", "inventory.json", _other_inventory, "bad_hash", "DS072"),
        _more("an object more", "array-00001/c/9/9/9"),
        _more("an object more of another name", "readme"),
    ]
